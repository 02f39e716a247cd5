"""The sizes of every experiment, a module per unit: unit -> *sizes* -> the cells that measure.

A module of a unit holds SIZES, {name: (value at smoke, laptop, gpu)}, and NEEDS, what the unit
takes at `gpu` scale. No other module sets the size of an experiment, but `steady_batches` of
course.measure.comparison that of a pass over a loader.
"""

from types import SimpleNamespace

from course.device import SCALES, scale
from course.errors import CourseError
from course.experiment_sizes import (
    batch_grouping,
    beyond_data_parallel,
    data_parallel,
    fast_loading,
    faster_training,
    large_batch,
    parallel_loading,
)
from course.system import fit

UNITS = {
    "01_parallel_loading": parallel_loading,
    "02_data_parallel": data_parallel,
    "03_large_batch": large_batch,
    "04_fast_loading": fast_loading,
    "05_batch_grouping": batch_grouping,
    "06_faster_training": faster_training,
    "07_beyond_data_parallel": beyond_data_parallel,
}


def sizes(unit: str) -> SimpleNamespace:
    """A namespace of the sizes of `unit`'s experiments at the current scale.

    At `gpu` scale prints what they take, and sizes shrink to what the machine has
    (course.system.fit).

    Raises: CourseError if no such unit has sizes.
    """
    if unit not in UNITS:
        raise CourseError(f"no unit is called {unit!r}; the units are {', '.join(UNITS)}.")
    values = at_scale(unit, scale())
    if scale() == "gpu":
        values, sentences = fit.fitted(unit, UNITS[unit].NEEDS, values, fit.free_bytes())
        print("\n".join(sentences))
    return SimpleNamespace(**values)


def at_scale(unit: str, name: str) -> dict[str, object]:
    """{size: value} of `unit` at the scale `name`, one of SCALES, before any shrinks."""
    column = SCALES.index(name)
    return {size: values[column] for size, values in UNITS[unit].SIZES.items()}

"""Run the solved cells of a part in this process, without Jupyter, and collect its claims.

A GPU server need not have Jupyter, and a kernel takes seconds to start. Tables and figures, which a
notebook would show, are not kept.  `course build --execute` makes the notebooks in solutions/.
"""

import linecache
import os
import sys
import types
from collections.abc import Callable

from course.learner import claims
from course.learner.claims import Claim
from course.notebook.cells import read_cells
from course.notebook.registry import solutions_folder


def run_part(unit: str, part: str, done: Callable[[int, int, list[Claim]], None]) -> list[Claim]:
    """Run the solved part from top to bottom in a new module `__main__` and return its claims,
    which are printed.

    Args:
        done: called with (cells that ran, cells in all, claims so far) after each cell.

    Raises: whatever a cell raises; the exception has a note that names the cell.
    """
    os.environ["MPLBACKEND"] = "agg"
    cells, timings = read_cells(solutions_folder() / unit / f"{part}.py"), []
    sources = [cell.source + "\n" for cell in cells if cell.kind == "code"]

    def show(claim):
        timings.append(claim)
        print(claim, flush=True)

    before = sys.modules["__main__"], claims._show
    # as in a kernel: what is defined there is pickled by value
    module = types.ModuleType("__main__")
    sys.modules["__main__"], claims._show = module, show
    try:
        for number, source in enumerate(sources, 1):
            _run_cell(
                source,
                f"<cell {number} of {part}>",
                vars(module),
                f"in cell {number} of {len(sources)}",
            )
            done(number, len(sources), timings)
    finally:
        sys.modules["__main__"], claims._show = before
    return timings


def _run_cell(source, name, namespace, place):
    # inspect reads it
    linecache.cache[name] = (
        len(source),
        None,
        source.splitlines(keepends=True),
        name,
    )
    try:
        exec(compile(source, name, "exec"), namespace)
    except Exception as error:
        error.add_note(place)
        raise

"""Run the solved cells of a part in this process, without Jupyter, and collect its claims.

A GPU server need not have Jupyter, and a kernel takes seconds to start. Tables and figures, which a
notebook would show, are not kept.  `course build --execute` makes the notebooks in solutions/.
"""

import contextlib
import linecache
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from course.learner import claims
from course.learner import predictions as scored
from course.learner.claims import Claim
from course.notebook.cells import read_cells
from course.notebook.registry import solutions_folder


def run_part(
    unit: str,
    part: str,
    done: Callable[[int, int, list[Claim]], None],
    predictions: list[dict[str, str]] | None = None,
) -> list[Claim]:
    """Run the solved part in a new module `__main__` and return its claims, which are printed.

    Args:
        done: called with (cells that ran, cells in all, claims so far) after each cell.
        predictions: gets {"what": ..., "measured": ...} of each value that learners predict.

    Raises: whatever a cell raises; the exception has a note that names the cell.
    """
    os.environ["MPLBACKEND"] = "agg"
    cells = read_cells(solutions_folder() / unit / f"{part}.py")
    sources = [cell.source + "\n" for cell in cells if cell.kind == "code"]
    made = []
    # as in a kernel: what is defined in __main__ is pickled by value
    module = types.ModuleType("__main__")
    values = [] if predictions is None else predictions
    with _as_main(module), _collecting_claims(made), _collecting_predictions(values):
        for number, source in enumerate(sources, 1):
            place = f"in cell {number} of {len(sources)}"
            _run_cell(source, f"<cell {number} of {part}>", vars(module), place)
            done(number, len(sources), made)
    return made


@contextlib.contextmanager
def _as_main(module: types.ModuleType) -> Iterator[None]:
    before = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        yield
    finally:
        sys.modules["__main__"] = before


@contextlib.contextmanager
def _collecting_claims(made: list[Claim]) -> Iterator[None]:
    """Inside the block, each claim is added to `made` and printed."""

    def show(claim: Claim, others: object) -> None:
        made.append(claim)
        print(claim, flush=True)

    before = claims._show
    claims._show = show
    try:
        yield
    finally:
        claims._show = before


@contextlib.contextmanager
def _collecting_predictions(made: list[dict[str, str]]) -> Iterator[None]:
    """Inside the block, each measured value that learners predict is added to `made`, none kept."""

    def keep(place: str, what: str, plain: object, found: Any, *rest: object) -> str:
        made.append({"what": what, "measured": found.shown})
        return ""

    before = scored._keep
    scored._keep = keep
    try:
        yield
    finally:
        scored._keep = before


def _run_cell(source: str, name: str, namespace: dict, place: str) -> None:
    lines = source.splitlines(keepends=True)
    linecache.cache[name] = (len(source), None, lines, name)  # inspect reads it
    try:
        exec(compile(source, name, "exec"), namespace)
    except Exception as error:
        error.add_note(place)
        raise

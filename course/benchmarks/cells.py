"""The solved cells of a part, run in this process without Jupyter: a master -> *cells* -> claims and a count.

A GPU server need not have Jupyter, and a kernel takes seconds to start.  What a notebook would show besides what it
prints, tables and figures, goes nowhere.  `course build --execute` is what makes the notebooks in solutions/.
"""

import contextlib
import linecache
import os
import re
import sys
import types
from collections.abc import Callable, Iterator

from course.learner import claims
from course.learner.claims import Claim
from course.units import solutions_folder


def code_cells(unit: str, part: str) -> list[str]:
    """The sources of a master's code cells, with solutions and hidden tests."""
    text = (solutions_folder() / unit / f"{part}.py").read_text()
    blocks = re.split(r"^(?=# %%)", text, flags=re.MULTILINE)
    return [block for block in blocks if block.startswith("# %%") and "[markdown]" not in block.partition("\n")[0]]


def run_part(unit: str, part: str, done: Callable[[int, int, list[Claim]], None]) -> list[Claim]:
    """Run the solved part from top to bottom in this process and return its claims.

    Args:
        done: called with (cells that ran, cells in all, claims so far) after each cell.

    Raises: whatever a cell raises; the exception has a note that names the cell.
    """
    os.environ["MPLBACKEND"] = "agg"
    sources, found = code_cells(unit, part), []
    with _main_module() as namespace, _collected(found):
        for number, source in enumerate(sources, 1):
            name = f"<cell {number} of {part}>"
            linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)  # inspect reads it
            try:
                exec(compile(source, name, "exec"), namespace)
            except Exception as error:
                error.add_note(f"in cell {number} of {len(sources)}")
                raise
            if "matplotlib.pyplot" in sys.modules:
                sys.modules["matplotlib.pyplot"].close("all")
            done(number, len(sources), found)
    return found


@contextlib.contextmanager
def _main_module() -> Iterator[dict]:
    """Yield the namespace of a new module `__main__`, as a kernel has it: what is defined there is pickled by value."""
    before, module = sys.modules["__main__"], types.ModuleType("__main__")
    sys.modules["__main__"] = module
    try:
        yield vars(module)
    finally:
        sys.modules["__main__"] = before


@contextlib.contextmanager
def _collected(found):
    """Inside the block every claim is printed and kept in the list `found`."""

    def show(made):
        found.append(made)
        print(made, flush=True)

    before, claims._show = claims._show, show
    try:
        yield
    finally:
        claims._show = before

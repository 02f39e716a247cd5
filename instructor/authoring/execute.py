"""Run solved notebooks and keep their outputs, in solutions/<unit>/<part>.ipynb.

The parts of a unit run in order with one fresh folder of kept answers, so that answers travel from
part to part as they do for a learner.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course.errors import CourseError
from course.learner.kept_predictions import FILE
from course.notebook.cells import EXPERIMENT
from course.notebook.registry import parts, solutions_folder
from course.system.files import write_text
from instructor.authoring.masters import source_notebook, text_of

WIDGET = "application/vnd.jupyter.widget-view+json"  # names a model that only a running kernel has
NOTEBOOK_LIMIT = 1_000_000  # bytes of an executed notebook
CELL_SECONDS = 1200  # at laptop scale on two cores


Measured = dict[str, str]  # what learners predict, in words, and its measured value


def execute(unit: str, wanted: list[str], progress: Callable = print) -> dict[str, list[Measured]]:
    """Run the parts `wanted` of `unit` and write them with their outputs.

    Of earlier parts only the answers are run.

    Returns: {part: what its predictions are about, and the measured values}.

    Raises: CourseError that names the cell whose code failed, or if a notebook gets too large.
    """
    warm_up()
    measured = {}
    with tempfile.TemporaryDirectory() as answers:
        for part in parts(unit):
            source = source_notebook(unit, part)
            if part in wanted:
                _write(unit, part, executed_notebook(source, answers, progress))
                measured[part] = measured_values(Path(answers, unit, FILE), part)
            elif part < max(wanted):
                source.cells = [cell for cell in source.cells if not _measures(cell)]
                executed_notebook(source, answers, progress)
    return measured


def measured_values(path: Path, part: str) -> list[Measured]:
    """The measured values of a part that `course.score` has kept in the file `path`."""
    if not path.exists():
        return []
    kept = json.loads(path.read_text(encoding="utf-8"))
    of_part = [one for one in kept if one["part"] == part]
    return [{"what": one["what"], "measured": one["measured"]} for one in of_part]


def _measures(cell):
    return EXPERIMENT in cell.metadata.get("tags", [])


def warm_up() -> None:
    """Import what prints on a machine's first run (Matplotlib lists its fonts).

    No cell shows it then.
    """
    code = "import matplotlib.font_manager, torch, torchvision, IPython"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)


def executed_notebook(
    source: NotebookNode, answers: str | Path, progress: Callable = print
) -> NotebookNode:
    """`source` run from top to bottom in a fresh kernel, with its outputs.

    Args:
        answers: folder where passed checks keep answers for later parts.

    Raises: CourseError that names the cell whose code failed.
    """
    from nbclient import NotebookClient  # slow to import; only this function needs it
    from nbclient.exceptions import CellExecutionError

    nb = nbformat.from_dict(source)
    total = sum(cell.cell_type == "code" for cell in nb.cells)
    client = NotebookClient(
        nb,
        kernel_name="python3",
        timeout=CELL_SECONDS,
        record_timing=False,
        coalesce_streams=True,
        store_widget_state=False,
        force_raise_errors=True,  # whatever a cell allows
        extra_arguments=["--log-level=ERROR"],
    )
    started = {}
    client.on_cell_execute = lambda cell, cell_index: started.update({cell_index: time.monotonic()})

    def note(cell, cell_index, execute_reply):
        seconds = round(time.monotonic() - started[cell_index])
        if seconds:
            cell.metadata["seconds"] = seconds  # prose.py counts them
        progress(f"  cell {execute_reply['content']['execution_count']} of {total}")

    client.on_cell_executed = note
    # else a kernel may warn about frozen modules on stderr
    quiet = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    try:
        client.execute(env=os.environ | quiet | {"COURSE_ANSWERS": str(answers)})
    except CellExecutionError as error:
        raise CourseError(
            f"a cell of {source.metadata.course.built_from} failed:\n{error}"
        ) from None
    nb.metadata = source.metadata
    drop_cleared_bars(nb)
    _drop_widgets(nb)
    return nb


def drop_cleared_bars(nb: NotebookNode) -> None:
    """Leave of each printed line what a terminal shows in the end; drop outputs that show nothing.

    A progress bar that ends clears its line with spaces, which a page would show as a blank line.
    """
    for cell in nb.cells:
        if cell.cell_type != "code":
            continue
        kept = []
        for output in cell.outputs:
            if output.output_type == "stream":
                output.text = "\n".join(_last_shown(line) for line in output.text.split("\n"))
            if output.output_type != "stream" or output.text:
                kept.append(output)
        cell.outputs = kept


def _last_shown(line: str) -> str:
    """What stands after the last carriage return that something follows; "" if it is blank."""
    shown = [part for part in line.split("\r") if part]
    if len(shown) == 0 or ("\r" in line and not shown[-1].strip()):
        return ""
    return shown[-1]


def _drop_widgets(nb):
    """Leave of each figure to play with its picture, its data and its words.

    The book draws it from the data; a notebook with the data a second time would be too large.
    """
    for cell in nb.cells:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(WIDGET, None)


def _write(unit, part, nb):
    text = text_of(nb)
    if len(text.encode()) > NOTEBOOK_LIMIT:
        size = f"{len(text.encode()):,} bytes, over {NOTEBOOK_LIMIT:,}"
        raise CourseError(f"the executed {part} has {size}: draw smaller figures.")
    path = solutions_folder() / unit / f"{part}.ipynb"
    write_text(path, text)
    print(f"{unit}/{path.name}: executed, {len(text) // 1000} kB")

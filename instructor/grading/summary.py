"""The table and the item analysis of a graded batch, as text, CSV and a picture.

text = write_summary(results, folder)    # scores.txt, scores.csv, items.txt, items.csv, items.png
"""

from pathlib import Path

from course.system.files import atomic_write, write_text
from instructor.grading import analysis
from instructor.grading.results import Graded


def write_summary(results: list[Graded], folder: Path) -> str:
    """Write all into `folder`; return the table and the item analysis as text."""
    items = analysis.items(results)
    table = analysis.table(results)
    items_text = analysis.items_text(items)
    write_text(folder / "scores.txt", table)
    write_text(folder / "scores.csv", analysis.table_csv(results))
    write_text(folder / "items.txt", items_text)
    write_text(folder / "items.csv", analysis.items_csv(items))
    learners = {graded.learner for graded in results}
    _write_picture(items, f"{len(learners)} learners", folder / "items.png")
    return f"{table}\n{items_text}"


def _write_picture(items: list[analysis.Item], title: str, path: Path) -> None:
    # imports matplotlib, which would keep everybody waiting at the start
    from instructor.grading import plots

    figure = plots.shares(items, title)
    with atomic_write(path) as file:
        figure.savefig(file, format="png")

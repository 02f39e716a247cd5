"""The flip map: a row per piece of advice, a column per machine, a colour per verdict."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from course.learner.advice import SEED, TODAY
from course.learner.flip_map import (
    EXACT,
    LOSES,
    NOT_DECIDED,
    NOT_MEASURED,
    SAME,
    WINS,
    Cell,
    FlipMap,
    Row,
)
from course.plots.style import BLUE, GREEN, GREY, RED, axes

SOURCES = (SEED, TODAY)
FILLS = {WINS: GREEN, LOSES: RED, SAME: BLUE, NOT_DECIDED: "#999999"}
SOLID, PALE = 0.45, 0.16  # of a cell with an interval, and of one without
FRAME = dict(fc="none", ec="black", lw=1.2)  # of a cell that this kernel has measured
ROW_INCHES = 0.235
COLUMN_INCHES = 1.42
LABEL_INCHES = 3.5


def flip_map(found: FlipMap) -> Figure:
    """Draw all cells; the name of a piece of advice that flips is bold."""
    lines = len(found.rows) + len(SOURCES)
    width = LABEL_INCHES + COLUMN_INCHES * len(found.machines)
    figure, ax = axes(width, ROW_INCHES * lines + 1.0)
    y = 0
    for source in SOURCES:
        ax.text(-0.03, y, source, ha="right", va="center", fontsize=8.5, style="italic", color=GREY)
        y += 1
        for row in found.rows:
            if row.advice.source == source:
                _draw_row(ax, y, row)
                y += 1
    ax.set(xlim=(0, max(1, len(found.machines))), ylim=(lines - 0.5, -0.5))
    names = [name.replace(", ", ",\n") for name in found.machines]
    ax.set_xticks([k + 0.5 for k in range(len(names))], names, fontsize=8.5)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.set_yticks([])
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    figure.suptitle(_title(found), fontsize=11)
    figure.legend(handles=_legend(), ncols=3, frameon=False, loc="outside lower center", fontsize=8)
    return figure


def _draw_row(ax: Axes, y: float, row: Row) -> None:
    weight = "bold" if row.flips else "normal"
    ax.text(-0.03, y, row.advice.name, ha="right", va="center", fontsize=8, weight=weight)
    for column, cell in enumerate(row.cells.values()):
        _draw_cell(ax, column, y, cell)


def _draw_cell(ax: Axes, column: int, y: float, cell: Cell) -> None:
    if cell.verdict in FILLS:
        strength = SOLID if cell.has_interval else PALE
        style = dict(fc=FILLS[cell.verdict], alpha=strength, ec="none")
        ax.add_patch(Rectangle((column + 0.02, y - 0.45), 0.96, 0.9, **style))
    if cell.is_here:
        ax.add_patch(Rectangle((column + 0.02, y - 0.45), 0.96, 0.9, **FRAME))
    is_absent = cell.verdict == NOT_MEASURED
    color, size = ("#aaaaaa", 6.5) if is_absent else ("black", 7.5)
    text = cell.text if len(cell.text) < 26 else f"{cell.text[:24]}…"
    ax.text(column + 0.5, y, text, ha="center", va="center", fontsize=size, color=color)


def _title(found: FlipMap) -> str:
    count = len(found.flipping)
    verb = "piece of advice wins" if count == 1 else "pieces of advice win"
    return f"{count} {verb} on one machine and lose{'s' * (count == 1)} on another"


def _legend():
    handles = [Patch(fc=color, alpha=SOLID, label=word) for word, color in FILLS.items()]
    handles.append(Patch(fc=GREY, alpha=PALE, label="pale: without an interval"))
    handles.append(Patch(fc="none", label=f"no colour: {EXACT}"))
    handles.append(Patch(**FRAME, label="framed: measured by this kernel"))
    return handles

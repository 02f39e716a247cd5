"""Find what makes a part's evidence weak: a function per rule of docs/style.md.

The rules of text and minutes: prose.py.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from course.notebook.cells import Cell, read_cells
from course.notebook.outline import outline
from course.notebook.registry import all_parts, package_of, solutions_folder
from course.system.folders import ROOT
from instructor.authoring.prose import (
    GIVES_NOTHING_AWAY,
    NOT_RUN,
    NUMBER,
    SOURCE,
    Runs,
    predictions,
    without_code,
)

PREDICTIONS_MAX = 3  # per part
EXPERIMENT_STATEMENTS_MAX = 20  # lines would make authors write dense ones
CONFIDENCE = "95 %"  # of all intervals
NULLS = {"above", "below", "within"}  # the arguments of a claim that name its null

# a number with decimals, or one before a unit that only a measurement has
_MEASURED = re.compile(
    NUMBER.pattern + r"(?=(?P<unit> ?(?:%|(?:times|points|ms|µs|s|seconds|minutes|[KMG]i?B/s)\b))?)"
)
_VERSION = re.compile(r"\b(?:torch|PyTorch|Python) \d+(?:\.\d+)+")
_RUN_AGAIN = re.compile(
    r"\b(?:run|repeat|try) (?:it|(?:the|this) cell) again\b|\brepeat it\b", re.I
)
_CONFIDENCE = re.compile(r"\*\*(?:Shown|Known|We think)\b")


def lint_evidence(unit: str, cells: list[Cell], runs: Runs) -> Iterator[str]:
    """The faults of a part's evidence.

    Args:
        runs: what its cells did when the notebook was executed.
    """
    yield from static_numbers(unit, cells, runs)
    yield from guesses(cells)
    yield from long_experiments(cells)
    yield from advice_to_repeat(cells)
    yield from constant_claims(cells)
    yield from claims_without_null(cells)
    yield from confidence(cells)
    yield from hidden_figures(cells)


def static_numbers(unit: str, cells: list[Cell], runs: Runs) -> Iterator[str]:
    """A measured number in the text: one that an experiment printed, and no code gives.

    Numbers of the experiments' sizes and versions are given. A whole number without a unit may be
    an exact count, so it may stay. References have numbers of sections.
    """
    measured = _printed(cells, runs) - _given(unit, cells)
    for section in outline(cells):
        if section.title == "References":
            continue
        text = _VERSION.sub("", SOURCE.sub("", without_code(section.text)))
        for match in _MEASURED.finditer(text):
            number = match[0]
            if number in measured and ("." in number or match["unit"]):
                yield f'"{section.title}" says {number}, which a cell measures: let a cell print it'


def _printed(cells, runs):
    """The numbers that the experiments printed and claimed."""
    printed = set()
    for section in outline(cells):
        for number in section.experiments:
            run = runs.get(section.cells[number].id, NOT_RUN)
            printed.update(NUMBER.findall(run.printed))
    return printed


def _given(unit, cells):
    """The numbers of the code, of the experiments' sizes, and those that any text has."""
    texts = [CONFIDENCE, *(cell.source for cell in _code(cells))]
    sizes = ROOT / "course" / "experiment_sizes" / f"{package_of(unit)}.py"
    if sizes.exists():
        texts.append(sizes.read_text(encoding="utf-8"))
    return GIVES_NOTHING_AWAY.union(*map(NUMBER.findall, texts))


def guesses(cells: list[Cell]) -> Iterator[str]:
    """Too many predictions, or one that no `course.score(...)` compares with a measurement."""
    guessed = []
    scored = set()
    for cell in _code(cells):
        guessed += predictions(cell)
        for call in _calls(cell, "score"):
            scored |= {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
    if len(guessed) > PREDICTIONS_MAX:
        yield f"it asks for {len(guessed)} predictions, more than {PREDICTIONS_MAX}"
    for name in guessed:
        if name not in scored:
            yield f"{name} is never scored: print(course.score(..., {name}, ...))"


def long_experiments(cells: list[Cell]) -> Iterator[str]:
    """Experiments that are longer than one likes to read."""
    for section in outline(cells):
        for number in section.experiments:
            statements = _statements(section.cells[number].source)
            if statements > EXPERIMENT_STATEMENTS_MAX:
                yield (
                    f'"{section.title}" has an experiment of {statements} statements, more than '
                    f"{EXPERIMENT_STATEMENTS_MAX}: move what need not be read into course/"
                )


def _statements(source: str) -> int:
    """The statements of a cell, those in a function's body too."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(source)))


def advice_to_repeat(cells: list[Cell]) -> Iterator[str]:
    """Advice to measure again until it fits, in a text or in a sentence that a cell prints."""
    for cell in cells:
        said = [cell.source] if cell.kind == "markdown" else _strings(cell)
        for text in said:
            for match in _RUN_AGAIN.finditer(" ".join(text.split())):
                yield f'it says "{match[0]}": a result may be "not decided here"'


def constant_claims(cells: list[Cell]) -> Iterator[str]:
    """Claims whose sentence differs from run to run, so that no record can be found by it."""
    for cell in _code(cells):
        for call in _calls(cell, "claim"):
            if _sentence(call) is None:
                yield (
                    f"the sentence of {_shortened(call)} is not a constant string: "
                    "records are found by it"
                )


def claims_without_null(cells: list[Cell]) -> Iterator[str]:
    """Claims that compare with < or > and do not say what would be expected by chance."""
    for cell in _code(cells):
        for call in _calls(cell, "claim"):
            has_null = not NULLS.isdisjoint(keyword.arg for keyword in call.keywords)
            if not has_null and any(map(_is_order, ast.walk(call))):
                yield (
                    f"{_shortened(call)} compares with < or >: pass an Interval and "
                    "above=, below= or within=; an exact count is a bool with a name"
                )


def confidence(cells: list[Cell]) -> Iterator[str]:
    """A part that measures, and marks no reason as shown, known or thought."""
    is_measuring = any(section.experiments for section in outline(cells))
    text = "\n".join(cell.source for cell in cells if cell.kind == "markdown")
    if is_measuring and not _CONFIDENCE.search(text):
        yield "it gives no reason marked **Shown**, **Known** or **We think**"


def hidden_figures(cells: list[Cell]) -> Iterator[str]:
    """Figures that are drawn and never shown: a notebook shows the last expression of a cell."""
    for cell in _code(cells):
        for statement in ast.parse(cell.source).body[:-1]:
            if _is_drawing(statement):
                yield (
                    f"{ast.unparse(statement)[:40]}... draws a figure that nobody sees: "
                    "make it the last line of its cell"
                )


def repeated_sentences(unit: str) -> Iterator[str]:
    """Claims of the rebuilt parts of `unit` whose sentence another claim of the course has."""
    places = {}
    for name in all_parts():
        path = solutions_folder() / name.unit / f"{name.part}.py"
        for sentence in _sentences(path, path.stat().st_mtime_ns):
            places.setdefault(sentence, []).append(name)
    for sentence, names in places.items():
        if len(names) > 1 and any(name.unit == unit for name in names):
            where = " and ".join(f"{name.unit}/{name.part}" for name in names)
            yield f'the claim "{sentence}" is in {where}; a sentence is in the course once'


@lru_cache(maxsize=64)
def _sentences(path: Path, modified: int) -> tuple[str, ...]:
    """The constant sentences of the claims of a master, which was `modified` then."""
    found = []
    for cell in _code(read_cells(path)):
        found += [_sentence(call) for call in _calls(cell, "claim")]
    return tuple(sentence for sentence in found if sentence is not None)


def _code(cells: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.kind == "code"]


def _calls(cell, name):
    """The calls of course.<name> in a cell."""
    for node in ast.walk(ast.parse(cell.source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"course.{name}":
            yield node


def _sentence(call):
    """The first argument of a claim; None if it is not a constant string."""
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    return None


def _is_drawing(statement):
    """Whether `statement` calls <...plots>.<name> or figures.<name> and drops what it returns."""
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    module, _, _ = ast.unparse(statement.value.func).partition(".")
    return module.endswith(("plots", "figures"))


def _strings(cell):
    for node in ast.walk(ast.parse(cell.source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _is_order(node):
    """Whether `node` is a comparison with <, <=, > or >=."""
    orders = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
    return isinstance(node, ast.Compare) and any(isinstance(op, orders) for op in node.ops)


def _shortened(call):
    first = ast.unparse(call.args[0]) if call.args else ""
    return f"course.claim({first[:40]}...)"

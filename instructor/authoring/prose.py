"""Find what makes a part hard to read: a function per rule of docs/style.md.

It has the rules of text and minutes, which every part obeys. The rules of evidence: evidence.py;
the form of a master: lint.py.
"""

import ast
import re
import symtable
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from course.learner.claims import MARK
from course.notebook.cells import Cell, read_cells
from course.notebook.outline import Section, outline
from course.notebook.statements import (
    EXERCISE_TITLE,
    EXTRA_HEADING,
    FACTS_LINE,
    part_header,
    task_facts,
)

MUST_CONDITIONS_MAX = 3  # under **Must**
CONDITIONS_MAX = 2  # in every other paragraph of a task that starts in bold
# paragraphs that hold no conditions
FREE = ("Points", "Source", "Example", "Predict", "Takeaway", "Shown", "Known", "We think")
TASK_WORDS = 150  # of a task from which on the build says how long it is
TAKEAWAY_WORDS_MAX = 30
WORDS_PER_MINUTE = 180
LINES_PER_MINUTE = 25  # of code
# that a header may differ from the formula, because experiments take other seconds each time
MINUTES_OFF_MAX = 3

INSTEAD = {  # what docs/style.md replaces: pattern -> what to write
    r"anew": "again, from scratch",
    r"at once": "immediately, or simultaneously",
    r"in turns?": "one after the other, or interleaved",
    r"mend(s|ed|ing)?": "fix",
    r"beside": "next to, or compared with",
    r"for ever": "forever, or: hangs",
    r"whoever": "a rank that, if you",
    r"at hand": "available",
    r"all the same": "anyway, or identical",
    r"go(es)? on": "continue, or resume",
    r"hand(s|ed|ing)? over": "pass, transfer, send",
    r"(in|out)side of": "inside, outside",
    r"of (my|your|its|his|their) own(?! [a-z])": "its own ...",
    r"(?<!there )(is|are|was|were) no "
    r"(?!longer|more|less|fewer|better|worse|\w+er\b)\w+": "is not a ...",
    r"where (it|the claims?|this|these) (does|do) not hold": "claim(..., otherwise=)",
}
_INSTEAD = {re.compile(rf"\b{pattern}\b", re.I): instead for pattern, instead in INSTEAD.items()}
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`|\$[^$\n]*\$|\]\([^)]*\)|<!--.*?-->", re.M | re.S)
_LABELLED = re.compile(
    r"(?<!\S)\*\*(?P<label>[A-Z][\w ]*)\*\*(?P<text>.*?)(?=\n\n|\s\*\*[A-Z]|\Z)", re.S
)
_HINTS = re.compile(r"<details>.*?</details>", re.S)
EXAMPLE = re.compile(r"^```(?:python|pycon)?\n(?P<code>>>> .*?)^```", re.M | re.S)
_QUESTION = re.compile(r"\A## (?:.*\?(?: · extra)?$|.*\n+\*\*[^*]+\?\*\*$)", re.M)
_FENCED = re.compile(r"^```.*?^```", re.M | re.S)
SOURCE = re.compile(r"\*\*Source\*\*.*?(?=\n\n|\Z)", re.S)
_FIGURE = re.compile(r"^ *(?:plots\.\w+|(?:course\.)?figures\.\w+|\w+\.draw)\(", re.M)
_ITEM = re.compile(r" *[-+*>] ")
_TERM = re.compile(r"[-+*>] \d")
_WORD = re.compile(r"\w")
_PRINTED = re.compile(r"# (\d+) lines to read$", re.M)
_SOLUTION = re.compile(r"^ *### BEGIN SOLUTION.*?### END SOLUTION", re.M | re.S)
NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?![\w.]*\d)")
GIVES_NOTHING_AWAY = {*map(str, range(13)), "100"}  # numbers that any text has


class Run(NamedTuple):
    """What a cell did when its notebook was executed."""

    printed: str = ""  # and claimed
    seconds: float = 0


NOT_RUN = Run()
Runs = dict[str, Run]  # by the id of the cell


def lint_prose(cells: list[Cell], executed: Path) -> Iterator[str]:
    """The faults of a part's prose.

    Args:
        executed: path of the notebook with its outputs, which need not exist.
    """
    runs = runs_of(executed)
    for task in tasks(cells):
        yield from conditions(task)
    for section in outline(cells)[1:]:
        for fault in (*marked(section), *questions(section), *told(section, runs)):
            yield f'"{section.title}" {fault}'
    yield from leaning(cells)
    yield from stated_minutes(cells, runs)
    text = "\n\n".join(cell.source for cell in cells if cell.kind == "markdown")
    yield from split_sums(text)
    for words, instead in offences(text):
        yield f"write {instead}: {words}"


def split_sums(text: str) -> Iterator[str]:
    """Lines that begin with an operator, which a notebook shows as the item of a list."""
    for paragraph in _FENCED.sub("", text).split("\n\n"):
        before = ""
        for line in paragraph.splitlines():
            is_inside_code = before.count("`") % 2 == 1 and _ITEM.match(line)
            is_term = _TERM.match(line) and before and not _ITEM.match(before)
            if is_inside_code or is_term:
                yield f"break this line elsewhere, its operator makes a list: {line}"
            before = line


def stated_minutes(cells: list[Cell], runs: Runs) -> Iterator[str]:
    """Core minutes in the header that are not those of the formula."""
    stated = part_header(cells[0].source).core_minutes
    due = core_minutes(cells, runs)
    if stated is not None and abs(stated - due) > MINUTES_OFF_MAX:
        yield f"its header says {stated} minutes for the core, the formula of docs/style.md {due}"


def leaning(cells: list[Cell]) -> Iterator[str]:
    """Sections of the core that use a name which only an extra section before them defines."""
    core = set()
    extra = set()
    for section in outline(cells):
        whole = symtable.symtable(section.code, section.title, "exec")
        symbols = whole.get_symbols()
        made = {name.get_name() for name in symbols if name.is_assigned() or name.is_imported()}
        if section.says_extra:
            extra |= made
            continue
        core |= made
        leant = _referenced(whole) & extra - core
        if leant:
            names = ", ".join(sorted(leant))
            yield f'"{section.title}" uses {names} of an extra section, which may be skipped'


def _referenced(table, is_whole=True):
    """The global names that a symbol table, or one inside it, refers to."""
    names = set()
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (is_whole or symbol.is_global()):
            names.add(symbol.get_name())
    for inner in table.get_children():
        names |= _referenced(inner, is_whole=False)
    return names


def tasks(cells: list[Cell]) -> list[str]:
    """The texts of the tasks of a part, without hints."""
    texts = []
    for cell in cells:
        title = EXERCISE_TITLE.search(cell.source)
        if cell.kind == "markdown" and title and task_facts(cell.source):
            texts.append(_HINTS.sub("", cell.source[title.start() :]))
    return texts


def conditions(task: str) -> Iterator[str]:
    """More conditions than one can hold in mind.

    A condition is an item, a sentence or what a semicolon ends.
    """
    for match in _LABELLED.finditer(task):
        label = match["label"]
        pieces = re.split(r"\n[-*] |[;.](?=\s|$)", match["text"].replace("e.g.", ""))
        count = sum(bool(piece.strip()) for piece in pieces)
        most = MUST_CONDITIONS_MAX if label == "Must" else CONDITIONS_MAX
        if label not in FREE and count > most:
            yield (
                f"{_title(task)}: {count} conditions under **{label}**, more than {most}; "
                "drop or give some"
            )


def marked(section: Section) -> Iterator[str]:
    """A heading that does not say that its section is extra, or says so of a core exercise."""
    if section.is_extra and not section.says_extra:
        yield f'has extra exercises only: end its heading with "{EXTRA_HEADING}"'
    if "Core" in section.kinds and section.says_extra:
        yield "is called extra and has a core exercise"


def questions(section: Section) -> Iterator[str]:
    """A section that measures without asking first, or without saying in one line what came out."""
    if not section.experiments:
        return
    if not _QUESTION.search(section.text):
        yield "measures: make its heading, or the bold line below it, the question"
    first = section.experiments[0]
    after = Section(section.title, section.cells[first:]).text
    labelled = _LABELLED.finditer(after)
    takeaways = [match["text"] for match in labelled if match["label"] == "Takeaway"]
    if len(takeaways) != 1:
        yield f"measures: it needs one paragraph **Takeaway** after that, not {len(takeaways)}"
    elif len(takeaways[0].split()) > TAKEAWAY_WORDS_MAX:
        yield f"has a takeaway of over {TAKEAWAY_WORDS_MAX} words"


def told(section: Section, runs: Runs) -> Iterator[str]:
    """A number above a prediction that the experiment below it prints, and no code gives."""
    given = GIVES_NOTHING_AWAY.union(NUMBER.findall(section.code))
    above = ""
    is_guessed = False
    for number, cell in enumerate(section.cells):
        if cell.kind == "markdown":
            # an example measures nothing, nor does the section of a paper
            above += SOURCE.sub("", _FENCED.sub("", cell.source))
        elif predictions(cell):
            is_guessed = True
        if is_guessed and number in section.experiments:
            printed = runs.get(cell.id, NOT_RUN).printed
            both = {*NUMBER.findall(above)} & {*NUMBER.findall(printed)}
            for answer in sorted(both - given):
                yield f"says {answer} above a prediction, which the cell below prints"
            is_guessed = False


def core_minutes(cells: list[Cell], runs: Runs) -> int:
    """What the core of a part takes.

    That is its text, its code, its core exercises, a minute per figure and prediction, its
    experiments.
    """
    minutes = 0.0
    for section in outline(cells):
        if section.is_extra or section.title == "References":
            continue
        minutes += _words(section) / WORDS_PER_MINUTE
        minutes += sum(facts.minutes for facts in section.facts if facts.is_core)
        minutes += len(_FIGURE.findall(section.code))
        for cell in section.cells:
            minutes += len(predictions(cell))
            minutes += _lines_to_read(cell) / LINES_PER_MINUTE
        for number in section.experiments:
            minutes += runs.get(section.cells[number].id, NOT_RUN).seconds / 60
    return round(minutes)


def predictions(cell: Cell) -> list[str]:
    """The names that a cell leaves to the learner's prediction, e.g. `predicted_speedup = None`."""
    names = []
    if cell.kind != "code":
        return names
    for statement in ast.parse(cell.source).body:
        if isinstance(statement, ast.Assign) and _is_none(statement.value):
            for target in statement.targets:
                names += [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]
    return [name for name in names if name.startswith(("predicted", "my_guess"))]


def _is_none(value):
    """Whether an assigned value is None, or a tuple of it."""
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    return all(isinstance(each, ast.Constant) and each.value is None for each in values)


def code_lines(source: str) -> int:
    """The lines of code that hold a word, comments apart: no blank ones, no closing brackets."""
    lines = [line.strip() for line in source.splitlines()]
    return sum(bool(_WORD.search(line)) and not line.startswith("#") for line in lines)


def _lines_to_read(cell):
    """The lines of a cell that a learner must read: not a solution, a grade cell or the setup.

    A comment says how many lines of code the cell prints: "# 31 lines to read".
    """
    if cell.kind != "code" or "test" in cell.marks or cell.marks.get("locked") == "setup":
        return 0
    printed = sum(map(int, _PRINTED.findall(cell.source)))
    return code_lines(_SOLUTION.sub("", cell.source)) + printed


def without_code(text: str) -> str:
    """A Markdown text without code, formulas, the targets of links and comments."""
    return _CODE.sub(" ", text)


def offences(text: str) -> Iterator[tuple[str, str]]:
    """(words, what to write instead) for each use of INSTEAD outside code in a text."""
    text = without_code(text)
    for pattern, instead in _INSTEAD.items():
        for match in pattern.finditer(text):
            around = text[max(0, match.start() - 30) : match.end() + 20]
            yield " ".join(around.split()), instead


def measured(cells: list[Cell], executed: Path) -> str:
    """What `course build` says of the length of a part."""
    words = sum(_words(section) for section in outline(cells))
    said = [f"{words:,} words, {core_minutes(cells, runs_of(executed))} core minutes"]
    for task in tasks(cells):
        body = task.partition("\n")[2]
        count = len(EXAMPLE.sub("", FACTS_LINE.sub("", body)).split())
        if count > TASK_WORDS:
            said.append(f"{_title(task)} has {count} words")
    return "; ".join(said)


def _words(section):
    """The number of words of a section, without hints."""
    return len(_HINTS.sub("", section.text).split())


def _title(task):
    return EXERCISE_TITLE.search(task)[0].lstrip("# ")


def runs_of(executed: Path) -> Runs:
    """The Run of each cell of an executed notebook; none if there is no such file."""
    runs = {}
    for cell in read_cells(executed) if executed.exists() else []:
        claimed = []
        printed = []
        for output in cell.outputs:
            claim = output.get("metadata", {}).get(MARK, {})
            claimed.append(claim.get("value", ""))
            printed.append("".join(output.get("text", "")))
        runs[cell.id] = Run("\n".join([*claimed, *printed]), cell.seconds)
    return runs

"""Find what makes a part hard to read: the rules of docs/style.md that a program can hold, one
function each.

The form of a master: lint.py.
"""

import re
import symtable
from collections.abc import Iterator
from pathlib import Path

import nbformat

from course.learner.claims import MARK
from course.notebook.registry import EXERCISE_TITLE, FACTS_LINE, MINUTES_LINE

# under **Must**, and in every other paragraph of a task that starts in bold
MOST_CONDITIONS, MOST_OTHERS = (
    3,
    2,
)
FREE = ("Points", "Source", "Example", "Predict", "Takeaway")  # paragraphs that hold no conditions
LONG_TASK, LONG_TAKEAWAY, WORDS_PER_MINUTE = 150, 30, 180  # words
# minutes that a header may differ from the formula, because experiments take other seconds each
# time
OFF = 3
EXTRA = "· extra"  # how the heading of a section ends that is not core

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
    r"(?<!there )(is|are|was|were) no (?!longer|more|less|fewer|better|worse|\w+er\b)\w+": "is not a ...",
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
_GUESS = re.compile(r"^(?:predicted|my_guess)\w* = None", re.M)
_NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?![\w.]*\d)")


class Section(list):
    """What a part has between two headings: (cell, text) pairs; a text cell with a heading in it is
    cut in two.
    """

    def __init__(self, title=""):
        self.title, self.says_extra = title, title.endswith(EXTRA)

    @property
    def text(self):
        return "\n\n".join(text for cell, text in self if cell.cell_type == "markdown")

    @property
    def code(self):
        return "\n".join(text for cell, text in self if cell.cell_type == "code")

    @property
    def kinds(self):
        """Of its exercises: "Core", "Extra"."""
        return {match["kind"] for match in FACTS_LINE.finditer(self.text)}

    @property
    def experiments(self):
        return [
            number
            for number, (cell, _) in enumerate(self)
            if "experiment" in cell.metadata.get("tags", [])
        ]


def sections(nb) -> list[Section]:
    """The Sections of a part; the first is what comes before the first heading."""
    result = [Section()]
    for cell in nb.cells:
        is_text = cell.cell_type == "markdown"
        for text in filter(
            None, re.split(r"^(?=## )", cell.source, flags=re.M) if is_text else [cell.source]
        ):
            if is_text and text.startswith("## "):
                result.append(Section(text.partition("\n")[0][3:].strip()))
            result[-1].append((cell, text))
    return result


def lint_prose(nb, executed: Path) -> Iterator[str]:
    """The faults of a revised part; `executed` is the notebook with its outputs, which need not
    exist.
    """
    outputs = _outputs(executed)
    for task in tasks(nb):
        yield from conditions(task)
    for section in sections(nb)[1:]:
        for fault in (*marked(section), *questions(section), *told(section, outputs)):
            yield f'"{section.title}" {fault}'
    yield from leaning(nb)
    stated, due = MINUTES_LINE.search(nb.cells[0].source), core_minutes(nb, outputs)
    if stated and abs(int(stated["core"]) - due) > OFF:
        yield f"its header says {stated['core']} minutes for the core, the formula of docs/style.md {due}"
    for words, instead in offences(
        "\n\n".join(cell.source for cell in nb.cells if cell.cell_type == "markdown")
    ):
        yield f"write {instead}: {words}"


def leaning(nb) -> Iterator[str]:
    """Sections of the core that use a name which only an extra section before them defines."""
    core, extra = set(), set()
    for section in sections(nb):
        whole = symtable.symtable(section.code, section.title, "exec")
        defined = {
            name.get_name()
            for name in whole.get_symbols()
            if name.is_assigned() or name.is_imported()
        }
        (extra if section.says_extra else core).update(defined)
        if not section.says_extra and (leant := _referenced(whole) & extra - core):
            yield f'"{section.title}" uses {", ".join(sorted(leant))} of an extra section, which may be skipped'


def _referenced(table, is_whole=True):
    """The global names that a symbol table, or one inside it, refers to."""
    here = {
        name.get_name()
        for name in table.get_symbols()
        if name.is_referenced() and (is_whole or name.is_global())
    }
    return here.union(*(_referenced(inner, False) for inner in table.get_children()))


def tasks(nb) -> list[str]:
    """The texts of the tasks of a part, without hints."""
    texts = [
        cell.source
        for cell in nb.cells
        if cell.cell_type == "markdown" and FACTS_LINE.search(cell.source)
    ]
    return [
        _HINTS.sub("", text[title.start() :])
        for text in texts
        if (title := EXERCISE_TITLE.search(text))
    ]


def conditions(task: str) -> Iterator[str]:
    """More conditions than one can hold in mind; a condition is an item, a sentence or what a
    semicolon ends.
    """
    for match in _LABELLED.finditer(task):
        pieces = re.split(r"\n[-*] |[;.](?=\s|$)", match["text"].replace("e.g.", ""))
        count, must = sum(bool(piece.strip()) for piece in pieces), match["label"] == "Must"
        if match["label"] not in FREE and count > (
            most := MOST_CONDITIONS if must else MOST_OTHERS
        ):
            yield f"{_title(task)}: {count} conditions under **{match['label']}**, more than {most}; drop or give some"


def marked(section: Section) -> Iterator[str]:
    """A heading that does not say that its section is extra, or says so of a core exercise."""
    if section.kinds == {"Extra"} and not section.says_extra:
        yield f'has extra exercises only: end its heading with "{EXTRA}"'
    if "Core" in section.kinds and section.says_extra:
        yield "is called extra and has a core exercise"


def questions(section: Section) -> Iterator[str]:
    """A section that measures without asking first, or without saying in one line what came out."""
    if not section.experiments:
        return
    if not _QUESTION.search(section.text):
        yield "measures: make its heading, or the bold line below it, the question"
    after = "\n\n".join(
        text for cell, text in section[section.experiments[0] :] if cell.cell_type == "markdown"
    )
    takeaways = [
        match["text"] for match in _LABELLED.finditer(after) if match["label"] == "Takeaway"
    ]
    if len(takeaways) != 1:
        yield f"measures: it needs one paragraph **Takeaway** after that, not {len(takeaways)}"
    elif len(takeaways[0].split()) > LONG_TAKEAWAY:
        yield f"has a takeaway of over {LONG_TAKEAWAY} words"


def told(section: Section, outputs: dict) -> Iterator[str]:
    """A number above a prediction that the experiment below it prints or claims, and no code
    gives.
    """
    above, guessed, given = "", False, {*_NUMBER.findall(section.code), *map(str, range(13)), "100"}
    for number, (cell, text) in enumerate(section):
        # an example is no measurement
        above += _FENCED.sub("", text) if cell.cell_type == "markdown" else ""
        guessed |= cell.cell_type == "code" and bool(_GUESS.search(text))
        if guessed and number in section.experiments:
            printed, _ = outputs.get(cell.id, ("", 0))
            for answer in sorted({*_NUMBER.findall(above)} & {*_NUMBER.findall(printed)} - given):
                yield f"says {answer} above a prediction, which the cell below prints"
            guessed = False


def core_minutes(nb, outputs: dict) -> int:
    """What the core of a part takes: its text, its core exercises, a minute per figure and guess,
    its experiments.
    """
    total = 0
    for section in sections(nb):
        if section.says_extra or section.kinds == {"Extra"} or section.title == "References":
            continue
        total += len(_HINTS.sub("", section.text).split()) / WORDS_PER_MINUTE
        total += sum(
            int(match["minutes"])
            for match in FACTS_LINE.finditer(section.text)
            if match["kind"] != "Extra"
        )
        total += len(re.findall(r"^ *plots\.\w+\(", section.code, re.M)) + len(
            _GUESS.findall(section.code)
        )
        total += (
            sum(outputs.get(section[number][0].id, ("", 0))[1] for number in section.experiments)
            / 60
        )
    return round(total)


def offences(text: str) -> Iterator[tuple[str, str]]:
    """(words, what to write instead) for each use of INSTEAD outside code in a text."""
    text = _CODE.sub(" ", text)
    for pattern, instead in _INSTEAD.items():
        for match in pattern.finditer(text):
            yield " ".join(text[max(0, match.start() - 30) : match.end() + 20].split()), instead


def measured(nb, executed: Path) -> str:
    """What `course build` says of the length of a part."""
    words = sum(len(_HINTS.sub("", section.text).split()) for section in sections(nb))
    lengths = {
        _title(t): len(EXAMPLE.sub("", FACTS_LINE.sub("", t.partition("\n")[2])).split())
        for t in tasks(nb)
    }
    long = [f"{title} has {count} words" for title, count in lengths.items() if count > LONG_TASK]
    return "; ".join(
        [f"{words:,} words, {core_minutes(nb, _outputs(executed))} core minutes", *long]
    )


def _title(task):
    return EXERCISE_TITLE.search(task)[0].lstrip("# ")


def _outputs(path):
    """{id of a code cell: (what it printed and claimed, its seconds)} of the executed notebook at
    `path`.
    """
    texts = {}
    for cell in nbformat.read(path, as_version=4).cells if path.exists() else []:
        claims = [
            output.get("metadata", {}).get(MARK, {}).get("value", "")
            for output in cell.get("outputs", [])
        ]
        printed = "\n".join(
            [*claims, *(output.get("text", "") for output in cell.get("outputs", []))]
        )
        texts[cell.id] = printed, cell.metadata.get("seconds", 0)
    return texts

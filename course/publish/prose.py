"""Find what makes a part hard to read: the rules of docs/style.md that a program can hold, one function each.

They hold for the parts revised since the rules exist; NOT_YET_REVISED lists the others, which only `measured` counts.
lint.py has the rules for the form of a master.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from course.learner.claims import MARK
from course.units import EXERCISE_TITLE, FACTS_LINE, MINUTES_LINE

NOT_YET_REVISED = frozenset("""
    1_inside_the_dataloader 2_honest_measurements 3_randomness_bytes_processes 4_how_many_workers 5_feeding_the_gpu
    6_build_a_loader 7_the_starved_run 1_how_ranks_talk 2_all_reduce_on_a_ring 3_ddp_from_scratch
    4_where_the_mean_goes_wrong 5_from_notebook_to_torchrun 6_why_two_are_not_twice_as_fast
    7_sharding_in_forty_lines 8_what_data_parallel_loses 1_from_ratings_to_a_score 2_bigger_batch_bigger_step
    3_a_learning_rate_for_every_layer 4_half_the_bits_part_of_the_batch 1_a_file_and_a_fast_batch
    2_orders_and_data_larger_than_memory 3_reading_ahead_up_to_the_gpu 4_fewer_bytes_fewer_passes
    1_what_padding_costs 2_few_groups 3_choose_the_batch 4_no_padding_at_all 1_find_out_what_is_slow 2_fewer_steps
    3_cheaper_steps 4_memory_and_the_race
""".split())  # fmt: skip

MOST_CONDITIONS, MOST_OTHERS = 3, 2  # under **Must**, and in every other paragraph of a task that starts in bold
FREE = ("Points", "Source", "Example", "Predict", "Takeaway")  # paragraphs that hold no conditions
LONG_TASK = 150  # words
LONG_TAKEAWAY = 30  # words: what one can repeat at lunch
WORDS_PER_MINUTE = 180
OFF = 3  # minutes that a header may differ from the formula, because experiments take other seconds each time
EXTRA = "extra"  # how the heading of a section ends that is not core, after " · "

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
_LABELLED = re.compile(r"(?<!\S)\*\*(?P<label>[A-Z][\w ]*)\*\*(?P<text>.*?)(?=\n\n|\s\*\*[A-Z]|\Z)", re.S)
_HINTS = re.compile(r"<details>.*?</details>", re.S)
_EXAMPLE = re.compile(r"^```(?:python|pycon)?\n(?P<code>>>> .*?)^```", re.M | re.S)
_QUESTION = re.compile(r"\A## (?:.*\?(?: · extra)?$|.*\n+\*\*[^*]+\?\*\*$)", re.M)
_GUESS = re.compile(r"^(?:predicted|my_guess)\w* = None", re.M)
_NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?![\w.]*\d)")


@dataclass
class Section:
    """What a part has between two headings: [(cell, text), ...], where a text cell may be cut in two."""

    title: str = ""
    cells: list = field(default_factory=list)

    @property
    def kinds(self) -> set:
        """Of its exercises: "Core", "Extra"."""
        return {match["kind"] for text in self.texts for match in FACTS_LINE.finditer(text)}

    @property
    def core(self) -> bool:
        return not self.title.endswith(f"· {EXTRA}") and self.kinds != {"Extra"} and self.title != "References"

    @property
    def texts(self) -> list[str]:
        return [text for cell, text in self.cells if cell.cell_type == "markdown"]

    @property
    def code(self) -> list:
        return [cell for cell, _ in self.cells if cell.cell_type == "code"]

    @property
    def experiments(self) -> list:
        return [cell for cell in self.code if "experiment" in cell.metadata.get("tags", [])]


def sections(nb) -> list[Section]:
    """The Sections of a part; the first is what comes before the first heading."""
    found = [Section()]
    for cell in nb.cells:
        is_text = cell.cell_type == "markdown"
        for text in re.split(r"^(?=## )", cell.source, flags=re.M) if is_text else [cell.source]:
            if is_text and text.startswith("## "):
                found.append(Section(text.partition("\n")[0][3:].strip()))
            found[-1].cells += [(cell, text)] if text else []
    return found


def lint_prose(part: str, nb, executed: Path) -> Iterator[str]:
    """The faults of a revised part; none of one that is NOT_YET_REVISED.

    Args:
        executed: the notebook with the outputs of this part, which need not exist.
    """
    if part in NOT_YET_REVISED or not nb.cells:
        return
    found, outputs = sections(nb), _outputs(executed)
    for text in tasks(nb):
        yield from conditions(text)
    for section in found[1:]:
        yield from marked(section)
        yield from questions(section)
        yield from told(section, outputs)
    yield from minutes(nb, outputs)
    yield from (f"write {instead}: {words}" for cell in nb.cells if cell.cell_type == "markdown"
                for words, instead in offences(cell.source))  # fmt: skip


def tasks(nb) -> list[str]:
    """The texts of the tasks of a part, without hints."""
    cells = [cell.source for cell in nb.cells if cell.cell_type == "markdown" and FACTS_LINE.search(cell.source)]
    return [
        _HINTS.sub("", text[EXERCISE_TITLE.search(text).start() :]) for text in cells if EXERCISE_TITLE.search(text)
    ]


def conditions(task: str) -> Iterator[str]:
    """More conditions than one can hold in mind; a condition is an item, a sentence or what a semicolon ends."""
    for match in _LABELLED.finditer(task):
        pieces = re.split(r"\n[-*] |[;.](?=\s|$)", match["text"].replace("e.g.", ""))
        count = sum(bool(piece.strip()) for piece in pieces)
        most = MOST_CONDITIONS if match["label"] == "Must" else MOST_OTHERS
        if match["label"] not in FREE and count > most:
            yield f"{_title(task)}: {count} conditions under **{match['label']}**, more than {most}; drop or give some"


def marked(section: Section) -> Iterator[str]:
    """A heading that does not say that its section is extra, or says so of a core exercise."""
    says = section.title.endswith(f"· {EXTRA}")
    if section.kinds == {"Extra"} and not says:
        yield f'"{section.title}" has extra exercises only: end its heading with "· {EXTRA}"'
    if "Core" in section.kinds and says:
        yield f'"{section.title}" is called {EXTRA} and has a core exercise'


def questions(section: Section) -> Iterator[str]:
    """A section that measures without asking first, or without saying in one line what came out."""
    if not section.experiments:
        return
    if not _QUESTION.search(section.texts[0]):
        yield f'"{section.title}" measures: make its heading, or the bold line below it, the question'
    number = [cell for cell, _ in section.cells].index(section.experiments[0])
    after = "\n\n".join(text for cell, text in section.cells[number:] if cell.cell_type == "markdown")
    takeaways = [match["text"] for match in _LABELLED.finditer(after) if match["label"] == "Takeaway"]
    if len(takeaways) != 1:
        yield f'"{section.title}" measures: it needs one paragraph **Takeaway** after that, not {len(takeaways)}'
    elif len(takeaways[0].split()) > LONG_TAKEAWAY:
        yield f'"{section.title}": its takeaway has over {LONG_TAKEAWAY} words'


def told(section: Section, outputs: dict) -> Iterator[str]:
    """A prediction whose answer stands in the text above it: a number that the cell below prints or claims."""
    above, code = "", "\n".join(cell.source for cell in section.code)
    for cell, text in section.cells:
        above += text if cell.cell_type == "markdown" else ""
        if cell.cell_type == "code" and _GUESS.search(text):
            rest = section.cells[[c for c, _ in section.cells].index(cell) :]
            printed = next((outputs[c.id][0] for c, _ in rest if c in section.experiments and c.id in outputs), "")
            given = {*_NUMBER.findall(code), *(str(number) for number in range(13)), "100"}
            for number in sorted({*_NUMBER.findall(above)} & {*_NUMBER.findall(printed)} - given):
                yield f'"{section.title}": the text above a prediction says {number}, which the cell below it prints'


def core_minutes(nb, outputs: dict) -> int:
    """What the core of a part takes: its text, its core exercises, a minute per figure and guess, its experiments."""
    words = figures = seconds = exercises = 0
    for section in filter(lambda section: section.core, sections(nb)):
        text = "\n".join(section.texts)
        words += len(_HINTS.sub("", text).split())
        exercises += sum(int(match["minutes"]) for match in FACTS_LINE.finditer(text) if match["kind"] != "Extra")
        code = "\n".join(cell.source for cell in section.code)
        figures += len(re.findall(r"^ *plots\.\w+\(", code, re.M)) + len(_GUESS.findall(code))
        seconds += sum(outputs[cell.id][1] for cell in section.experiments if cell.id in outputs)
    return round(words / WORDS_PER_MINUTE + exercises + figures + seconds / 60)


def minutes(nb, outputs: dict) -> Iterator[str]:
    """A header whose core minutes are not those of the formula."""
    stated = MINUTES_LINE.search(nb.cells[0].source)
    due = core_minutes(nb, outputs)
    if stated and abs(int(stated["core"]) - due) > OFF:
        yield f"its header says {stated['core']} minutes for the core, the formula of docs/style.md {due}"


def offences(text: str) -> Iterator[tuple[str, str]]:
    """(words, what to write instead) for each use of INSTEAD outside code in a text."""
    text = _CODE.sub(" ", text)
    for pattern, instead in _INSTEAD.items():
        for match in pattern.finditer(text):
            yield " ".join(text[max(0, match.start() - 30) : match.end() + 20].split()), instead


def examples(task: str) -> list[str]:
    """The worked examples of a task: blocks of code that start with >>>."""
    return [match["code"] for match in _EXAMPLE.finditer(task)]


def measured(nb, executed: Path) -> str:
    """What `course build` says of the length of a part."""
    words = sum(len(_HINTS.sub("", cell.source).split()) for cell in nb.cells if cell.cell_type == "markdown")
    long = [f"{_title(text)} has {n} words" for text in tasks(nb) if (n := len(_task(text).split())) > LONG_TASK]
    return "; ".join([f"{words:,} words, {core_minutes(nb, _outputs(executed))} core minutes", *long])


def _task(text):
    """What a learner has to read of a task: without its heading, its line of facts and its examples."""
    return _EXAMPLE.sub("", FACTS_LINE.sub("", text.partition("\n")[2]))


def _title(task):
    return EXERCISE_TITLE.search(task)[0].lstrip("# ")


def _outputs(path):
    """{id of a code cell: (what it printed and claimed, its seconds)} of the executed notebook at `path`."""
    cells: Iterable = nbformat.read(path, as_version=4).cells if path.exists() else []
    return {
        cell.id: ("\n".join(map(_said, cell.outputs)), cell.metadata.get("seconds", 0))
        for cell in cells
        if cell.cell_type == "code"
    }


def _said(output):
    claim = output.get("metadata", {}).get(MARK)
    return claim["value"] if claim else output.get("text", "")

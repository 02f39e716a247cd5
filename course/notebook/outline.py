"""Cut the cells of a part into sections: a heading, and what stands below it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from course.notebook.cells import EXPERIMENT, Cell
from course.notebook.statements import EXTRA_HEADING, TaskFacts, task_facts

_HEADING = re.compile(r"^## (?P<title>.+)$", re.M)
_BEFORE_HEADING = re.compile(r"^(?=## .)", re.M)


@dataclass
class Section:
    """What a part has between two headings; a Markdown cell with a heading inside is cut in two."""

    title: str = ""  # "" before the first heading
    cells: list[Cell] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Its Markdown."""
        return "\n\n".join(self._sources("markdown"))

    @property
    def code(self) -> str:
        return "\n".join(self._sources("code"))

    def _sources(self, kind):
        return [cell.source for cell in self.cells if cell.kind == kind]

    @property
    def facts(self) -> list[TaskFacts]:
        """The facts of its exercises, in order."""
        return task_facts(self.text)

    @property
    def kinds(self) -> set[str | None]:
        """Of its exercises: "Core", "Extra"."""
        return {facts.kind for facts in self.facts}

    @property
    def says_extra(self) -> bool:
        """Whether its heading says that it is not core."""
        return self.title.endswith(EXTRA_HEADING)

    @property
    def is_extra(self) -> bool:
        """Whether it says so, or has extra exercises alone."""
        return self.says_extra or self.kinds == {"Extra"}

    @property
    def experiments(self) -> list[int]:
        """The places in `cells` of those that measure."""
        return [number for number, cell in enumerate(self.cells) if EXPERIMENT in cell.tags]


def outline(cells: Iterable[Cell]) -> list[Section]:
    """The sections of a part; the first is what stands above the first heading."""
    sections = [Section()]
    for cell in cells:
        if cell.kind != "markdown":
            sections[-1].cells.append(cell)
            continue
        for text in _BEFORE_HEADING.split(cell.source):
            heading = _HEADING.match(text)
            if heading:
                sections.append(Section(heading["title"].strip()))
            if text:
                sections[-1].cells.append(replace(cell, source=text))
    return sections

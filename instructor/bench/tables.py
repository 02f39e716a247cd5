"""The table of a benchmark: print it, and keep it in the record of this machine.

    table = Table("lfw paths, batch 64", "Loading LFW, batches of 64", ["way", "images/s"])
    table.add("threads", "6,473 (6,276 to 6,761)")
    print(table)

A benchmark returns its tables; `course bench ... --record` writes them into recorded/<machine>.json
and makes docs/results.md again.
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from instructor.authoring import records
from instructor.authoring.documents import write_documents
from instructor.authoring.records import Machine


@dataclass
class Table:
    """What a benchmark has found."""

    key: str  # which table it replaces in a record; its first word gives the unit in documents.py
    title: str
    columns: list[str]
    note: str = ""  # what was measured: sizes, rounds, what is checked
    rows: list[list[str]] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        """Add a row of `cells`, as text."""
        self.rows.append([str(cell).strip() for cell in cells])

    def __str__(self) -> str:
        """Title, note and the rows in columns of equal width, which Markdown reads, too."""
        lines = [self.columns, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
        texts.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        head = f"{self.title}: {self.note}" if self.note else self.title
        return "\n".join(["", head, "", *texts, ""])


def keep(tables: Iterable[Table], machine: Machine) -> str:
    """Write `tables` into the record of `machine` and the pages; return a line on it."""
    record = records.read_record(machine)
    for table in tables:
        record["benchmarks"][table.key] = {
            "title": table.title,
            "command": command_line(sys.argv),
            "on": records.today(),
            "notes": [table.note] if table.note else [],
            "columns": table.columns,
            "rows": table.rows,
        }
    path = records.write_record(record)
    return f"{path.parent.name}/{path.name}: written. {write_documents()}"


def command_line(arguments: list[str]) -> str:
    """The command that was called with `arguments`, without --record and this machine's folders."""
    words = ["course"]
    for word in arguments[1:]:
        if word != "--record":
            words.append("FOLDER" if os.sep in word else word)
    return " ".join(words)

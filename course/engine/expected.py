"""Where expected facts come from in a class's folder, which has no masters: a file of facts.

The release recorded them of the reference answers on the visible seed: one file per unit and kind
of device, of plain data. Elsewhere the reference itself is run (judge.py).
"""

import functools
import hashlib
import lzma
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course.errors import CourseError
from course.system.folders import ROOT

if TYPE_CHECKING:
    import torch

CHECKS = ROOT / "course" / "checks"
ENGINE = ROOT / "course" / "engine"
GET_IT = "download the course folder again."
Records = dict[str, dict[str, Any]]  # exercise -> what Judge.record gave


def facts_file(unit: str, device: "torch.device") -> Path:
    """The path of what was recorded of `unit` on the kind of device that `device` is."""
    return CHECKS / "recorded" / f"{unit}.{device.type}.facts"


def pack_facts(records: Records) -> bytes:
    """The bytes of a facts file: `records`, and which checks they were recorded with."""
    # imports torch, which a caller that only asks for folders need not wait for
    from course.engine.wire import pack

    # a mistake repeats most of the facts
    return lzma.compress(pack({"checks": _checks_digest(), "records": records}))


@functools.cache
def load_facts(path: Path) -> Records:
    """The records that `pack_facts` was given, read once per process; nothing in them is executed.

    Raises: CourseError if there is no such file, it is damaged, or it was recorded with other
        checks.
    """
    from course.engine.wire import WireError, unpack

    try:
        content = unpack(lzma.decompress(path.read_bytes()))
        made_for = content["checks"]
        records: Records = content["records"]
    except FileNotFoundError:
        raise CourseError(
            f"looked for recorded facts in {path}, found no such file; {GET_IT}"
        ) from None
    except (OSError, lzma.LZMAError, EOFError, WireError, KeyError, TypeError) as error:
        raise CourseError(
            f"{path} should hold recorded facts, but cannot be read ({error}); {GET_IT}"
        ) from None
    if made_for != _checks_digest():
        raise CourseError(f"{path} does not match the checks in {CHECKS}; {GET_IT}")
    return records


def _checks_digest() -> str:
    """A text that changes when the source of any check does."""
    sources = []
    for folder in (CHECKS, ENGINE):
        for path in sorted(folder.rglob("*.py")):
            sources.append(path.read_text(encoding="utf-8"))
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()

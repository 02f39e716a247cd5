"""Where expected facts come from: reference answers (notebook/solutions.py), or facts recorded of
them.

In a class's folder, which has no masters, they are the facts that the release recorded on the
visible seed: one file per unit and kind of device, of plain data.
"""

import functools
import hashlib
import lzma

from course.errors import CourseError
from course.system.folders import ROOT

CHECKS = ROOT / "course" / "checks"
ENGINE = ROOT / "course" / "engine"
GET_IT = "download the course folder again."


def facts_file(unit, device):
    """The path of what was recorded of `unit` on the kind of device that the torch.device `device`
    is.
    """
    return CHECKS / "recorded" / f"{unit}.{device.type}.facts"


def pack_facts(records):
    """The bytes of a facts file: `records`, {exercise: plain data}, and which checks they were
    recorded with.
    """
    # it imports torch, which who only asks for folders need not wait for
    from course.engine.wire import (
        pack,
    )

    # a mistake repeats most of the facts
    return lzma.compress(pack({"checks": _checks_digest(), "records": records}))


@functools.cache
def load_facts(path):
    """The records that `pack_facts` was given, read once per process; nothing in the file is
    executed.

    Raises: CourseError if there is no such file, it is damaged, or it was recorded with other
    checks.
    """
    from course.engine.wire import WireError, unpack

    try:
        content = unpack(lzma.decompress(path.read_bytes()))
        made_for, records = content["checks"], content["records"]
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


def _checks_digest():
    """A string that changes when the source of any check does."""
    sources = [
        path.read_text(encoding="utf-8")
        for folder in (CHECKS, ENGINE)
        for path in sorted(folder.rglob("*.py"))
    ]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()

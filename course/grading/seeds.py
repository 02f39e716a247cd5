"""The seeds of a batch: each grade cell, the visible one too, gets one that nobody can know before it is graded.

    secret = secret_of(folder, again=False)                  # drawn, or that of a batch that something ended
    drawn_seed(secret, "03_large_batch", "LARS-visible")     # 48213
    finished(folder)                                         # the next batch draws anew

So facts of the visible check's inputs, which every learner has, are worth nothing as an answer.  The secret stays in
`build/grading/seeds.json`: the same batch, started again, asks the same of everybody.
"""

import hashlib
import json
import os
import secrets
from pathlib import Path

FILE = "seeds.json"
LARGEST = 100_000  # of a seed; probes make sizes of it by remainders
DRAWS = 8  # with so many a seed is taken even if one of our own right answers fails with it


def secret_of(folder: Path, again: bool) -> str:
    """Return the secret of the batch that is graded in `folder`, and keep it there, readable for its owner alone.

    Args:
        again: True takes the last batch's, if there is one, even if that has ended.
    """
    kept = _kept(folder)
    if kept.get("secret") and (again or not kept.get("has_ended")):
        secret = kept["secret"]
    else:
        secret = secrets.token_hex(16)
    _keep(folder, secret, has_ended=False)
    return secret


def finished(folder: Path) -> None:
    """Note that all of the batch in `folder` is graded."""
    _keep(folder, _kept(folder)["secret"], has_ended=True)


def drawn_seed(secret: str, unit: str, cell: str, draw: int = 0) -> int:
    """The seed, from 1 to LARGEST, of a grade cell in the batch with this secret; another one for each `draw`."""
    digest = hashlib.sha256(f"{secret} {unit} {cell} {draw}".encode()).digest()
    return 1 + int.from_bytes(digest[:8], "big") % LARGEST


def _kept(folder):
    try:
        kept = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) and isinstance(kept.get("secret"), str) else {}


def _keep(folder, secret, has_ended):
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f"{FILE}.new"
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump({"secret": secret, "has_ended": has_ended}, file)
    beside.replace(folder / FILE)

"""The seeds of a batch: each grade cell, the visible one too, gets one that nobody can know before
it is graded.

    secret = secret_of(folder, again=False)      # drawn, or that of a batch that something ended
    drawn_seed(secret, "03_large_batch", "LARS-visible")     # 48213
    keep_draws(folder, {"03_large_batch LARS-visible": 1})   # a right answer failed with its first
    finished(folder)                                         # the next batch draws again

So facts of the visible check's inputs, which every learner has, are worth nothing as an answer. The
secret stays in `build/grading/seeds.json`, with how often each cell's seed was drawn: the same
batch, started again, asks the same of everybody, even if a machine that was busy the first time is
idle now.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from instructor.grading.limits import SEED_MAX

FILE = "seeds.json"


def secret_of(folder: Path, again: bool) -> str:
    """The secret of the batch that is graded in `folder`, kept there, readable for its owner alone.

    Args:
        again: True takes the last batch's, if there is one, even if that has ended.
    """
    state = _kept(folder)
    if not state or (state.get("has_ended") and not again):
        state = {"secret": secrets.token_hex(16)}
    _keep(folder, state | {"has_ended": False})
    return str(state["secret"])


def draws_of(folder: Path) -> dict[str, int]:
    """{"unit cell": how often another seed was drawn}, where this batch has settled on one."""
    draws: dict[str, int] = _kept(folder).get("draws", {})
    return draws


def keep_draws(folder: Path, draws: Mapping[str, int]) -> None:
    """Add `draws` to those that `draws_of` gives."""
    _keep(folder, _kept(folder) | {"draws": draws_of(folder) | dict(draws)})


def finished(folder: Path) -> None:
    """Note that all of the batch in `folder` is graded."""
    _keep(folder, _kept(folder) | {"has_ended": True})


def drawn_seed(secret: str, unit: str, cell: str, draw: int = 0) -> int:
    """The seed, from 1 to SEED_MAX, of a grade cell in the batch with this secret.

    Each `draw` gives another one.
    """
    digest = hashlib.sha256(f"{secret} {unit} {cell} {draw}".encode()).digest()
    return 1 + int.from_bytes(digest[:8], "big") % SEED_MAX


def _kept(folder: Path) -> dict[str, Any]:
    try:
        stored = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if isinstance(stored, dict) and isinstance(stored.get("secret"), str):
        return stored
    return {}


def _keep(folder: Path, stored: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"{FILE}.new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(stored, file)
    new.replace(folder / FILE)

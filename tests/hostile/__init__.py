"""Hostile submissions, one small function each; its docstring says what it tries.

A function marked `cell` is the text of a cell: its body stands where an answer is due.  One marked `file` is called
with the place of the notebook file and an honest notebook, and gives what stands in that file: a dict (written as
JSON), text or bytes; None if it has put something there itself.

Every submission answers `scaled_lr` before the place of the attack and `polynomial_decay` behind it, honestly, for two
points each, and the exercise of the next part of the unit, for two more; `earns` says what is due to the attacked
part.  An attack on one of THIRD hands in that part alone, for nothing.  Code prints BREACH where something worked
that must not.  In a cell `host` says where things lie outside.
"""

# each enters its attacks in attack.ATTACKS
from hostile import (  # noqa: F401
    answering,
    channel,
    ending,
    files,
    forging,
    harming,
    lying,
    notebooks,
    replaying,
    saying,
    spying,
    taking,
    taking_ready_made,
    telling,
)

"""What the report of a hidden check may say: sentences of the engine's own, never a text that a jail sent.

    sealed(outcome)          # the same facts; what was raised, refused or printed in one of the sentences below

A jail's text may quote what the check asked, its seed included: the message of an exception, the name of its type, a
`repr`.  So of all that is not a fact only the kind is kept, and of kinds those alone that Python or the engine made.
"""

import builtins

from course.checks.engine import Outcome
from course.checks.limits import NOTHING_YET, Raised

# what is said for each kind that the engine raises or sends
SAID = {
    "NotImplementedError": "stopped by NotImplementedError: something is not written yet.",
    "LimitReached": "your code took too long or printed too much, and was stopped.",
    "MachineBusy": "the grader's machine was too busy for this check, which says nothing of your code.",
    "AskedForInput": "your code asks for input; a grader has nobody at the keyboard.",
    "InputChanged": "your code changed an argument that belongs to its caller. Copy it first.",
    "NoReturn": "your function returned None. Is there a return at its end, on every path?",
    "LeftBehind": "your code switched autograd off and left it off: use `with torch.no_grad():`.",
    "Patched": "your code changed what is not its own.",
    "ProcessEnded": "your code ended the process that it ran in.",
    "RankError": "stopped in one of the ranks.",
}
OWN = "stopped by an exception of your code."
REFUSED = "this check refuses your answer; see what the visible check says."


def sealed(outcome: Outcome) -> Outcome:
    """`outcome` of a hidden check as its report may show it."""
    raised = outcome.raised and Raised(*_said(outcome.raised))
    return Outcome(outcome.facts, raised, "", outcome.refused and REFUSED, outcome.is_cut)


def _said(raised):
    """(kind, text) of the engine's own for what a jail said was raised."""
    if raised.text == NOTHING_YET:
        return "NotImplementedError", NOTHING_YET
    if raised.kind in SAID:
        return raised.kind, SAID[raised.kind]
    kind = getattr(builtins, raised.kind, None)
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return raised.kind, f"stopped by {raised.kind}."
    return "Exception", OWN

"""Run a probe on an answer, within limits: what it finds, fact by fact, is an Outcome.

Judges nothing: judge.py compares the Outcome with that of the reference.
"""

import functools
from collections.abc import Callable, Generator, Iterator
from typing import Any

import torch

from course.engine.compare import differs, plain, same_values
from course.engine.limits import Limits, run_answer
from course.engine.outcome import Outcome
from course.engine.stops import InputChanged, LeftBehind, NoReturn

Answer = Callable[..., Any]  # what a learner writes: a function or a class
Facts = Generator[tuple[str, Any], None, None]  # what a probe yields: a sentence, and plain data
Probe = Callable[[Answer, torch.device, int], Facts]


def run_probe(
    probe: Probe,
    answer: Answer,
    device: torch.device,
    seed: int,
    limits: Limits,
    changes_inputs: bool = False,
    stop_when_differs_from: Outcome | None = None,
) -> Outcome:
    """The Outcome of `probe` on `answer`; its random numbers are the same at every call.

    Args:
        limits: those of the answer.
        changes_inputs: whether the answer may write into its arguments.
        stop_when_differs_from: an Outcome; the probe is asked no further than to the first fact
            that this one does not hold with the same value.
    """
    outcome = Outcome()
    is_watched = not changes_inputs and not isinstance(answer, type)
    watched = unchanged_inputs(answer) if is_watched else answer

    def collect() -> None:
        facts = probe(watched, device, seed)
        for fact, value in facts:
            outcome.facts[fact] = plain(value)
            if stop_when_differs_from and not _holds(stop_when_differs_from, fact, outcome):
                outcome.is_cut = True
                facts.close()
                break
        if not torch.is_grad_enabled():
            raise LeftBehind(
                "your code switched autograd off and left it off: use `with torch.no_grad():`."
            )
        if device.type == "cuda":
            # an error of a kernel shows up here, not in the comparison
            torch.cuda.synchronize(device)

    outcome.raised, outcome.printed = run_answer(collect, answer, limits)
    return outcome


def _holds(other: Outcome, fact: str, outcome: Outcome) -> bool:
    """Whether `other` holds `fact` with the value that `outcome` has for it."""
    return fact in other.facts and not differs(outcome.facts[fact], other.facts[fact])


def is_same_object(answer: Any, reference: Any) -> bool:
    """True if `answer` is `reference`, also under another name."""
    if answer is reference:
        return True
    code = getattr(reference, "__code__", None)
    return code is not None and getattr(answer, "__code__", None) is code


def unchanged_inputs(answer: Answer) -> Answer:
    """`answer`, except that a call raises where the answer leaves its task.

    It raises NoReturn if the answer gives None and InputChanged if it writes into an argument.
    """

    @functools.wraps(answer)
    def watched(*args: Any, **kwargs: Any) -> Any:
        given = [(f"argument {number}", value) for number, value in enumerate(args, 1)]
        given += kwargs.items()
        copies = []
        for label, value in given:
            for tensor in all_tensors(value):
                copies.append((label, tensor, tensor.detach().clone()))
        result = answer(*args, **kwargs)
        for label, tensor, before in copies:
            if not same_values(tensor.detach(), before):
                raise InputChanged(
                    f"your code changed {label}, a tensor that belongs to its caller. "
                    "Copy it first."
                )
        if result is None:
            raise NoReturn(
                "your function returned None. Is there a return at its end, on every path?"
            )
        return result

    return watched


def all_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor in `value`, also in lists, tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from all_tensors(item)
    elif isinstance(value, dict):
        yield from all_tensors(list(value.values()))

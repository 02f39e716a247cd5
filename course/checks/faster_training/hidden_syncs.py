"""Probe of exercise hidden_syncs."""

import operator
import random

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_text
from course.engine.probing.laws import tried
from course.engine.probing.values import type_word

# with a tensor of one number: some wait for its value, some do not
WAYS = (
    torch.Tensor.item,
    operator.methodcaller("tolist"),
    torch.Tensor.cpu,
    torch.Tensor.exp,
    torch.Tensor.detach,
    float,
    bool,
    str,
)


@exercise(returns_no_number=True)
def hidden_syncs(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Names of the calls that need a value of the device, in order."""
    x = torch.arange(1.0, 4 + seed % 3, device=device)
    loss = x.sum()
    yield "returns a list", type_word(answer(lambda: loss.item()))
    yield "loss.item()", answer(lambda: loss.item())
    yield from _calls(answer, x, loss)

    rng = random.Random(seed)
    ways = rng.sample(WAYS, k=len(WAYS)) + rng.choices(WAYS, k=4)  # each once at least

    def deep(depth: int) -> None:
        if depth:
            deep(depth - 1)
        for way in ways:
            way(loss)

    yield "a wait inside other functions", answer(lambda: deep(2 + seed % 3))
    results = []
    answer(lambda: results.append(x.sum(dim=0, keepdim=True) + torch.add(x, x, alpha=2)))
    yield "the call is made once", tried(len(results) == 1, len(x))
    yield "what the call computes is the same as without", results[0]
    yield "a new list each time", [answer(lambda: loss.item()), answer(lambda: loss.tolist())]

    def broken() -> None:
        loss.item()
        raise KeyError(f"of the call, with {len(x)} numbers")

    yield "an exception of the call passes through", error_text(answer, broken)
    result = answer(lambda: loss.item())
    loss.item()
    yield "it stops counting when the call is over", result


def _calls(answer: Answer, x: torch.Tensor, loss: torch.Tensor) -> Facts:
    """Calls that wait, and some that do not."""
    one = torch.tensor(1, device=x.device)
    three = answer(lambda: [(x * step).sum().item() for step in range(3)])
    yield "three waits in three steps", three
    waits = answer(lambda: (2 * x > loss).any().detach())
    yield "arithmetic, comparison and detach() wait for nothing", waits
    yield "x.cpu(), x.tolist()", answer(lambda: (x.cpu(), x.tolist()))
    yield "x.cpu().numpy()", answer(lambda: x.cpu().numpy())
    yield "float(loss), int(loss), bool(loss)", answer(lambda: (float(loss), int(loss), bool(loss)))
    yield "if loss > 0: ...", answer(lambda: 1 if loss > 0 else 0)
    yield "a list's index that is a tensor", answer(lambda: [5, 6][one])
    yield "the text of a tensor, as print(loss) needs it", answer(lambda: str(loss))
    yield "a tensor in an f-string", answer(lambda: f"{loss:.3f} {loss}")

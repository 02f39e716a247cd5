"""Probe of exercise hidden_syncs."""

import torch

from course.checks.engine import exercise
from course.checks.probing.errors import error_name
from course.checks.probing.travelling import travels


@exercise(isolated=True)
def hidden_syncs(answer, device, seed):
    """Names of the calls that need a value of the device, in order."""
    x = torch.arange(1.0, 4 + seed % 3, device=device)
    loss, k = x.sum(), torch.tensor(1, device=device)
    kind = type(answer(travels(lambda: loss.item())))
    yield "returns a list", kind.__name__
    yield "loss.item()", answer(travels(lambda: loss.item()))
    yield "three waits in three steps", answer(travels(lambda: [(x * step).sum().item() for step in range(3)]))
    yield "arithmetic, comparison and detach() wait for nothing", answer(travels(lambda: (2 * x > loss).any().detach()))
    yield "x.cpu(), x.tolist()", answer(travels(lambda: (x.cpu(), x.tolist())))
    yield "x.cpu().numpy()", answer(travels(lambda: x.cpu().numpy()))
    yield "float(loss), int(loss), bool(loss)", answer(travels(lambda: (float(loss), int(loss), bool(loss))))
    yield "if loss > 0: ...", answer(travels(lambda: 1 if loss > 0 else 0))
    yield "a list's index that is a tensor", answer(travels(lambda: [5, 6][k]))
    yield "the text of a tensor, as print(loss) needs it", answer(travels(lambda: str(loss)))
    yield "a tensor in an f-string", answer(travels(lambda: f"{loss:.3f} {loss}"))

    @travels
    def deep(depth):
        return deep(depth - 1) if depth else loss.item()

    yield "a wait inside other functions", answer(travels(lambda: deep(2 + seed % 3)))
    results = []

    def keep(value):
        results.append(value)

    answer(travels(lambda: keep(x.sum(dim=0, keepdim=True) + torch.add(x, x, alpha=2))))
    yield "the call is made once", len(results)
    yield "what the call computes is the same as without", results[0]
    yield "a list of its own each time", [answer(travels(lambda: loss.item())), answer(travels(lambda: loss.tolist()))]

    @travels
    def broken():
        loss.item()
        raise KeyError("of the call")

    yield "an exception of the call passes through", error_name(answer, broken)
    found = answer(travels(lambda: loss.item()))
    loss.item()
    yield "it stops counting when the call is over", found

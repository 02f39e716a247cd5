"""Show what each update of a loop that accumulates gradients uses: a loop -> printed lines."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Batch = tuple[Tensor, Tensor]  # inputs (n, features), labels (n,)


def show_updates(
    loop: Callable[[nn.Module, torch.optim.Optimizer], int], batches: Sequence[Batch]
) -> None:
    """Print which micro-batches each update uses, and how long its gradient is.

    The length is that of `grad`, over the length of the gradient of one batch of these samples.

    Args:
        loop: trains a classifier on `batches`, and returns its number of updates.
    """
    torch.manual_seed(0)
    model = nn.Linear(batches[0][0].shape[1], 3)
    seen = []
    used = set()
    model.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    numbers = {id(inputs): number for number, (inputs, _) in enumerate(batches)}

    def look(optimizer, *_):
        places = [numbers[id(inputs)] for inputs in seen]
        inputs = torch.cat([batches[place][0] for place in places])
        labels = torch.cat([batches[place][1] for place in places])
        loss = F.cross_entropy(F.linear(inputs, model.weight, model.bias), labels)
        (right,) = torch.autograd.grad(loss, model.weight)
        ratio = model.weight.grad.norm() / right.norm()
        print(f"   micro-batches {places}, gradient {ratio:.2f} times as long")
        used.update(places)
        seen.clear()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer.register_step_pre_hook(look)
    updates = loop(model, optimizer)
    print(f"   {updates} updates, unused: {sorted(set(range(len(batches))) - used)}")

"""Probe of exercise average_hook."""

import collections

import torch

from course.checks.data_parallel.shared import (
    HANG,
    _backward,
    _batches,
    _close,
    _copied,
    _Net,
    _same_bits,
    _together,
    _trainable_gradients,
    _trained,
    _vector,
)
from course.checks.engine import exercise
from course.distributed import counted, run_ranks


def _hooked(rank, world_size, answer, seed):
    """Facts of a rank about a hook on every trainable parameter."""
    whole, mine = _batches(rank, world_size, seed)

    def ready():
        module = _Net(seed)
        for p in module.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(answer)
        return module

    module = ready()
    with counted() as traffic:
        _backward(module, mine[0])
    first = _copied(_trainable_gradients(module))
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    before = _vector(module.parameters())
    _backward(module, mine[1])
    facts = {
        "backward leaves the weights as they are": torch.equal(_vector(module.parameters()), before),
        "the gradients after one backward": first,
        "what one backward sends": collections.Counter(operation for operation, _ in traffic),
        "a second backward adds its average to the first": _trainable_gradients(module),
    }
    module, alone = ready(), _Net(seed)
    facts["the weights after 5 SGD steps"] = _trained(module, module, mine)
    expected = _trained(alone, alone, whole)
    facts["one process with the whole batch gets the same"] = _close(_vector(module.parameters()), expected)
    return facts


@exercise(changes_inputs=True)
def average_hook(answer, device, seed):
    """Hooks on equal replicas, two and three of them."""
    for world_size in (2, 3):
        answers = run_ranks(_hooked, world_size, answer, seed, backend="gloo", timeout=HANG)
        for fact, value in _together(answers):
            yield f"{world_size} ranks: {fact}", value
        yield f"{world_size} ranks agree to the last bit", _same_bits(answers, "the weights after 5 SGD steps")

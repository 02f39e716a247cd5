"""Probe of exercise average_hook."""

import collections

import torch

from course.checks.data_parallel.networks import (
    Net,
    as_vector,
    backward,
    batches_of,
    copied,
    gradients,
    trained,
)
from course.checks.data_parallel.ranks import import_compiler, in_threads, together
from course.checks.data_parallel.wrappers import TRAINED, same_bits
from course.engine.exercise import Answer, Facts, exercise
from course.parallel.distributed import counted


@exercise(changes_inputs=True, returns_no_number=True)
def average_hook(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Hooks on equal replicas, two and three of them."""
    import_compiler()
    for world_size in (2, 3):
        answers = in_threads(_hooked, world_size, answer, seed)
        for fact, value in together(answers):
            yield f"{world_size} ranks: {fact}", value
        yield f"{world_size} ranks agree to the last bit", same_bits(answers)


def _hooked(rank: int, world_size: int, answer: Answer, seed: int) -> dict[str, object]:
    """Facts of a rank about a hook on every trainable parameter."""
    mine = batches_of(rank, seed)
    module = _with_hooks(answer, seed)
    with counted() as traffic:
        backward(module, mine[0])
    first = copied(gradients(module))
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    weights = as_vector(module.parameters())
    backward(module, mine[1])
    unchanged = torch.equal(as_vector(module.parameters()), weights)
    operations = collections.Counter(operation for operation, _ in traffic)
    facts = {
        "backward leaves the weights as they are": unchanged,
        "the gradients after one backward": first,
        "what one backward sends": operations,
        "a second backward adds its average to the first": gradients(module),
    }
    module = _with_hooks(answer, seed)
    facts[TRAINED] = trained(module, module, mine)
    return facts


def _with_hooks(answer: Answer, seed: int) -> Net:
    module = Net(seed)
    for p in module.parameters():
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(answer)
    return module

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


def _hooked(rank, world_size, answer, seed):
    """Facts of a rank about a hook on every trainable parameter."""
    mine = batches_of(rank, seed)

    def ready():
        module = Net(seed)
        for p in module.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(answer)
        return module

    module = ready()
    with counted() as traffic:
        backward(module, mine[0])
    first = copied(gradients(module))
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    before = as_vector(module.parameters())
    backward(module, mine[1])
    facts = {
        "backward leaves the weights as they are": torch.equal(
            as_vector(module.parameters()), before
        ),
        "the gradients after one backward": first,
        "what one backward sends": collections.Counter(operation for operation, _ in traffic),
        "a second backward adds its average to the first": gradients(module),
    }
    module = ready()
    return facts | {TRAINED: trained(module, module, mine)}


@exercise(changes_inputs=True, returns_no_number=True)
def average_hook(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Hooks on equal replicas, two and three of them."""
    import_compiler()
    for world_size in (2, 3):
        answers = in_threads(_hooked, world_size, answer, seed)
        for fact, value in together(answers):
            yield f"{world_size} ranks: {fact}", value
        yield f"{world_size} ranks agree to the last bit", same_bits(answers)

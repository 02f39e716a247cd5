"""Facts that hold for every wrapper of a module that keeps the replicas of all ranks equal, as DDP
does.
"""

import collections

import torch
from torch import nn

from course.checks.data_parallel.networks import (
    Branches,
    Net,
    Tied,
    as_vector,
    backward,
    batches_of,
    copied,
    gradients,
    trained,
)
from course.checks.data_parallel.ranks import import_compiler, in_threads, together
from course.parallel.distributed import counted

TRAINED = "the weights after 5 SGD steps"


def wrapper_facts(answer, seed, *more):
    """The facts of every wrapper, and those of `more`, functions like `odd_models`, on two ranks;
    then three ranks.
    """
    import_compiler()
    for facts_of_rank in (made, training, odd_models, *more):
        answers = in_threads(facts_of_rank, 2, answer, seed)
        yield from together(answers)
        if facts_of_rank is training:
            yield "ranks agree to the last bit", same_bits(answers)
    answers = in_threads(training, 3, answer, seed + 1)
    for fact, value in together(answers):
        yield f"3 ranks: {fact}", value
    yield "3 ranks agree to the last bit", same_bits(answers)


def same_bits(answers):
    """True if all ranks have the same weights after training."""
    return all(torch.equal(facts[TRAINED], answers[0][TRAINED]) for facts in answers)


def made(rank, world_size, answer, seed):
    """Facts of a rank about a wrapper that has just been made; the ranks' modules differ before."""
    module, (batch, *_) = Net(seed + rank), batches_of(rank, seed)
    before = list(map(id, module.parameters()))
    with counted() as traffic:
        model = answer(module)
        facts = {
            "is an nn.Module": isinstance(model, nn.Module),
            "module is the module that was given": model.module is module,
            "its parameters are those of the module": list(map(id, model.parameters())) == before,
            "has the trainable parameters of rank 0": as_vector(
                p for p in module.parameters() if p.requires_grad
            ),
            "has the frozen parameters of rank 0": as_vector(module.frozen.parameters()),
            "has the buffers of rank 0": as_vector([module.shift, module.version]),
            "has the buffers of rank 0 that are not persistent": module.table,
        }
        sent = len(traffic)
        facts["hands its arguments on to the module"] = model(batch[0], gain=3.0)
        facts["a forward pass sends nothing"] = len(traffic) - sent
    return facts


def training(rank, world_size, answer, seed):
    """Facts of a rank about gradients and weights in training."""
    mine, module = batches_of(rank, seed), Net(seed + rank)
    with counted() as traffic:
        model = answer(module)
        sent = len(traffic)
        backward(model, mine[0])
        calls, sizes = zip(*traffic[sent:], strict=True) if traffic[sent:] else ((), ())
    facts = {
        "the gradients after one backward": copied(gradients(module)),
        "a frozen parameter has no gradient": [p.grad for p in module.frozen.parameters()]
        == [None, None],
        "what one step sends": collections.Counter(calls),
        "the bytes of these calls": sorted(sizes),
    }
    module.zero_grad()
    facts[TRAINED] = trained(model, module, mine)
    module = Net(seed + rank)
    seen = trained(answer(module), module, mine, set_to_none=False)
    facts["a second model, with zero_grad(set_to_none=False)"] = seen
    module = Net(seed + rank)
    model = answer(module)
    backward(model, mine[0])
    backward(model, mine[1])
    return facts | {"a second backward adds its average to the first": gradients(module)}


def odd_models(rank, world_size, answer, seed):
    """Facts of a rank about tied parameters and about those that not every rank uses."""
    facts = {}
    batch, again, *_ = batches_of(rank, seed, outputs=6)
    with counted() as traffic:
        module = Tied(seed + rank)
        model = answer(module)
        sent = len(traffic)
        backward(model, batch)
        facts["the gradients where two layers share a weight"] = gradients(module)
        facts["bytes sent: a shared weight travels once"] = sum(size for _, size in traffic[sent:])

    module = Branches(seed + rank)
    model = answer(module)
    backward(model, batch, ("a", "bc"[rank % 2]))
    kinds = collections.defaultdict(list)  # of each layer, by its letter
    for name, gradient in copied(gradients(module)).items():
        kinds[name[7]].append(gradient)
    facts["a gradient that every rank has is averaged"] = kinds["a"]
    facts["a gradient that a rank lacks counts as zeros"] = kinds["b"] + kinds["c"]
    facts["a gradient that no rank has is zeros"] = kinds["d"]
    module.zero_grad()
    backward(model, again, ("a", "cb"[rank % 2]))
    facts["the same after zero_grad, the other way round"] = gradients(module)
    return facts

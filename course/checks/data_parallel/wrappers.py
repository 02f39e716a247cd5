"""Facts of every wrapper that keeps the replicas of all ranks equal, as DDP does."""

import collections
from collections.abc import Callable, Iterable, Sequence

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
from course.engine.exercise import Answer, Facts
from course.engine.probing.laws import tried
from course.parallel.distributed import counted

TRAINED = "the weights after 5 SGD steps"

RankFacts = dict[str, object]
FactsOfRank = Callable[[int, int, Answer, int], RankFacts]  # of (rank, world_size, answer, seed)


def wrapper_facts(answer: Answer, seed: int, *more: FactsOfRank) -> Facts:
    """The facts of every wrapper on two ranks, those of `more`, and training on three ranks."""
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


def bytes_of_calls(calls: Iterable[tuple[str, int]]) -> list[int]:
    """Bytes of each call in a part of a Traffic, in order."""
    return [n_bytes for _, n_bytes in calls]


def same_bits(answers: Sequence[RankFacts]) -> bool:
    """True if all ranks have the same weights after training."""
    return all(torch.equal(facts[TRAINED], answers[0][TRAINED]) for facts in answers)


def made(rank: int, world_size: int, answer: Answer, seed: int) -> RankFacts:
    """Facts of a rank about a wrapper that has just been made; the ranks' modules differ before."""
    module = Net(seed + rank)
    inputs, _ = batches_of(rank, seed)[0]
    before = list(map(id, module.parameters()))
    facts = {}
    with counted() as traffic:
        model = answer(module)
        facts["is an nn.Module"] = isinstance(model, nn.Module)
        facts["module is the module that was given"] = model.module is module
        same_parameters = list(map(id, model.parameters())) == before
        facts["its parameters are those of the module"] = same_parameters
        trainable = [p for p in module.parameters() if p.requires_grad]
        facts["has the trainable parameters of rank 0"] = as_vector(trainable)
        facts["has the frozen parameters of rank 0"] = as_vector(module.frozen.parameters())
        facts["has the buffers of rank 0"] = as_vector([module.shift, module.version])
        facts["has the buffers of rank 0 that are not persistent"] = module.table
        sent = len(traffic)
        facts["hands its arguments on to the module"] = model(inputs, gain=3.0)
        facts["a forward pass sends nothing"] = len(traffic) - sent
    return facts


def training(rank: int, world_size: int, answer: Answer, seed: int) -> RankFacts:
    """Facts of a rank about gradients and weights in training."""
    mine = batches_of(rank, seed)
    module = Net(seed + rank)
    with counted() as traffic:
        model = answer(module)
        sent = len(traffic)
        backward(model, mine[0])
        calls = traffic[sent:]
    frozen_gradients = [p.grad for p in module.frozen.parameters()]
    facts = {
        "the gradients after one backward": copied(gradients(module)),
        "a frozen parameter has no gradient": tried(
            frozen_gradients == [None, None], float(mine[0][0][0, 0])
        ),
        "what one step sends": collections.Counter(operation for operation, _ in calls),
        "the bytes of these calls": sorted(bytes_of_calls(calls)),
    }
    module.zero_grad()
    facts[TRAINED] = trained(model, module, mine)

    module = Net(seed + rank)
    weights = trained(answer(module), module, mine, set_to_none=False)
    facts["a second model, with zero_grad(set_to_none=False)"] = weights

    module = Net(seed + rank)
    model = answer(module)
    backward(model, mine[0])
    backward(model, mine[1])
    facts["a second backward adds its average to the first"] = gradients(module)
    return facts


def odd_models(rank: int, world_size: int, answer: Answer, seed: int) -> RankFacts:
    """Facts of a rank about tied parameters and about those that not every rank uses."""
    facts = {}
    batch, again, *_ = batches_of(rank, seed, outputs=6)
    with counted() as traffic:
        module = Tied(seed + rank)
        model = answer(module)
        sent = len(traffic)
        backward(model, batch)
        facts["the gradients where two layers share a weight"] = gradients(module)
        total = sum(bytes_of_calls(traffic[sent:]))
        facts["bytes sent: a shared weight travels once"] = tried(total, float(batch[0][0, 0]))

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

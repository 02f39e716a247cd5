"""Probe of exercise SplitMLP."""

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from course.checks.beyond_data_parallel.seams import logged_seams
from course.checks.data_parallel.ranks import import_compiler, in_threads, together
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.cpus import same_on_every_cpu
from course.engine.probing.laws import tried

PARAMETERS = ("wide_weight", "wide_bias", "narrow_weight", "narrow_bias")
STEPS = 3


@exercise(returns_no_number=True)
def SplitMLP(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Parameters, outputs and gradients of each rank, what it sends, weights after training."""
    import_compiler()
    for n in (2, 4):
        for fact, per_rank in together(in_threads(_facts, n, answer, seed)):
            yield f"{n} ranks: {fact}", per_rank


def _facts(rank: int, world_size: int, answer: Answer, seed: int) -> dict[str, object]:
    """Facts of a rank about a split MLP of two units per rank or more."""
    rng = torch.Generator().manual_seed(seed)
    dim = 3 + seed % 3
    whole = _mlp(dim, world_size * (2 + seed % 2), seed)
    x = torch.randn(2, 3, dim, generator=rng, dtype=torch.float64).requires_grad_()
    factors = torch.randn(2, 3, dim, generator=rng, dtype=torch.float64)
    log = []
    copy_to_ranks, sum_over_ranks = logged_seams(log)
    model = answer(whole, copy_to_ranks, sum_over_ranks)
    shapes = {name: tuple(getattr(model, name).shape) for name in PARAMETERS}
    facts: dict[str, object] = {"shapes of its parameters": shapes}
    for name in PARAMETERS:
        facts[f"values of {name}"] = getattr(model, name).detach().clone()
    trained = [name for name, _ in model.named_parameters()]
    facts["what an optimizer would train"] = sorted(trained)
    facts["numbers that its parameters keep alive"] = _kept(model)
    output = model(x)
    facts["the output"] = output.detach().clone()
    facts["sums of forward"] = list(log)
    (output * factors).sum().backward()
    facts["the gradient of the input"] = x.grad
    facts["sums after backward"] = list(log)
    for name in PARAMETERS:
        facts[f"the gradient of {name}"] = getattr(model, name).grad
    facts["two vectors of another shape"] = model(x[0, :2]).detach()
    facts["the output after three steps of training"] = _after_training(model, x.detach())
    facts["the whole MLP stays as it is"] = nn.utils.parameters_to_vector(
        whole.parameters()
    ).detach()
    weights = [StorageWeakRef(each.untyped_storage()) for each in whole.parameters()]
    del whole
    is_freed = all(weight.expired() for weight in weights)
    facts["nothing else keeps the whole MLP alive"] = tried(is_freed, factors.tolist())
    return facts


def _mlp(dim: int, hidden: int, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim)).double()
    same_on_every_cpu(mlp)
    return mlp


def _kept(model: nn.Module) -> int:
    """Numbers in the memory of all parameters, whether they show them or not."""
    storages = {}
    for parameter in model.parameters():
        storage = parameter.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes() // parameter.element_size()
    return sum(storages.values())


def _after_training(model: nn.Module, x: Tensor) -> Tensor:
    """The output for `x` after STEPS steps in which a block's sum, x + model(x), becomes small."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (x + model(x)).square().sum().backward()
        optimizer.step()
    return model(x).detach()

"""Probe of exercise train_ddp."""

import torch
from torch.nn import functional as F

from course.checks.compare import differs, plain
from course.checks.data_parallel import ddp_run
from course.checks.engine import exercise


@exercise(seconds=60)
def train_ddp(answer, device, seed):
    """Lives of one training in two ranks; only an answer that is right in them is run by torchrun, which takes longer.

    Always on the CPU.
    """
    ranks = ddp_run.lives(answer, seed)
    for fact, seen, right in _facts_of_lives(ranks, seed):
        yield fact, seen
        if differs(plain(seen), right):
            return
    outcome, saved = ddp_run.under_torchrun(answer, seed)
    yield "torchrun: how the ranks ended", outcome
    whole = ranks[0]["whole"]["saved"]
    same = isinstance(saved, dict) and _same_weights(saved["model"], whole["model"], exact=False)
    yield "torchrun: the same weights as in the ranks above", same


def _facts_of_lives(ranks, seed):
    """(fact, what was seen, what is right) of each life; stops nowhere: the caller stops at the first difference."""
    plain_run = [rank["plain"] for rank in ranks]
    n = len(ddp_run.data(seed)[0])
    per_epoch = -(-n // ddp_run.BATCH)
    total = per_epoch * ddp_run.EPOCHS
    share = [4, 4, n // 2 - 8] * ddp_run.EPOCHS
    losses = [rank["losses"] for rank in plain_run]
    kinds = [type(value).__name__ for value in losses[0]] if isinstance(losses[0], list) else "no list"
    yield "returns a float for each epoch", kinds, ["float"] * ddp_run.EPOCHS
    sizes = [[len(samples) for samples in rank["steps"]] for rank in plain_run]
    yield "samples that each rank takes in each step", sizes, [share] * ddp_run.WORLD
    steps = [sum(parts, []) for parts in zip(*(rank["steps"] for rank in plain_run), strict=True)]
    epochs = [sum(steps[i : i + per_epoch], []) for i in range(0, total, per_epoch)]
    yield "an epoch visits each sample once", [sorted(e) == list(range(n)) for e in epochs], [True] * ddp_run.EPOCHS
    yield "every epoch has another order", len(set(map(tuple, epochs))), ddp_run.EPOCHS
    yield "gradients of the step before are cleared when backward begins", not any(r["stale"] for r in plain_run), True
    expected, weights, momenta = _one_process(steps, seed)
    means = [expected[i : i + per_epoch] for i in range(0, total, per_epoch)]
    means = [sum(loss * size for loss, size in mean) / n for mean in means]
    apart = [s - e if abs(s - e) > 1e-4 else 0.0 for s, e in zip(losses[0], means, strict=True)]
    yield "the losses, means over all ranks, less those of one process on whole batches", apart, [0.0] * len(means)
    yield "every rank returns the same losses", losses[1] == losses[0], True

    yield "files that rank 0 leaves", plain_run[0]["files"], [ddp_run.CHECKPOINT]
    yield "files that rank 1 leaves", plain_run[1]["files"], []
    saved = plain_run[0]["saved"]
    keys = sorted(map(str, saved)) if isinstance(saved, dict) else saved
    yield "what the checkpoint holds", keys, ["model", "optimizer", "step"]
    yield "its step", saved["step"], total
    yield "its model has the names of the model itself", list(saved["model"]), list(weights)
    yield "its weights are those of one process on whole batches", _same_weights(saved["model"], weights, False), True
    state = saved["optimizer"].get("state", {}) if isinstance(saved["optimizer"], dict) else {}
    buffers = [entry.get("momentum_buffer") for entry in state.values() if isinstance(entry, dict)]
    found = len(buffers) == len(momenta) and all(isinstance(buffer, torch.Tensor) for buffer in buffers)
    found = found and all(torch.allclose(b, m, 1e-4, 1e-5) for b, m in zip(buffers, momenta, strict=True))
    yield "its optimizer has the momentum of each weight", found, True
    ends = [per_epoch * (e + 1) for e in range(ddp_run.EPOCHS)]
    yield "steps after which rank 0 has saved, save_every=1000", plain_run[0]["saves"], ends
    replaced = plain_run[0]["replaced"]
    yield "a new checkpoint is another file, put in the place of the old one", replaced, True
    yield "every checkpoint is flushed and os.fsync called before it gets its name", plain_run[0]["flushed"], True
    reports = [rank["reports"] for rank in plain_run]
    yield "epochs that each rank reports", [[e for e, _ in r] for r in reports], [list(range(ddp_run.EPOCHS)), []]
    yield "the losses that it reports", _near([loss for _, loss in reports[0]], means), True
    yield "the process group is gone at the end", any(rank["group left"] for rank in plain_run), False

    other = sum((sum(parts, []) for parts in zip(*(rank["other seed"]["steps"] for rank in ranks), strict=True)), [])
    yield "another seed, another order", other[:n] != epochs[0], True
    kept = [torch.stack([mask[:2] for mask in rank["whole"]["kept"]]) for rank in ranks]  # (steps, 2, features)
    yield "dropout differs from rank to rank", not torch.equal(*kept), True
    patterns = {tuple(k.flatten().tolist()) for k in kept[0]}  # of ten bits: two may be equal by chance
    yield "dropout differs from step to step", len(patterns) > total - 3, True
    saves = sorted({*range(2, total + 1, 2), *ends})
    yield "steps after which rank 0 has saved, save_every=2", ranks[0]["whole"]["saves"], saves

    cut = [rank["cut"] for rank in ranks]
    yield "an error in a step is raised to the caller", [life["raised"] for life in cut], ["Cut"] * ddp_run.WORLD
    yield "the process group is gone after an error", any(life["group left"] for life in cut), False
    yield "files after an error", cut[0]["files"], [ddp_run.CHECKPOINT]
    resumed = [rank["resumed"] for rank in ranks]
    again = [rank["whole"]["steps"][4:] for rank in ranks]  # five steps were done, four were saved
    yield "steps that a second life trains", [len(life["steps"]) for life in resumed], [total - 4] * ddp_run.WORLD
    yield "it trains the samples that were left", [life["steps"] for life in resumed] == again, True
    reads = [sum(map(len, steps)) for steps in again]
    yield "samples that it reads from the data set", [life["reads"] for life in resumed], reads
    yield "epochs that it reports", [epoch for epoch, _ in resumed[0]["reports"]], [1, 2]
    same = _same_weights(resumed[0]["saved"]["model"], ranks[0]["whole"]["saved"]["model"], exact=True)
    yield "it ends with the very weights of a training that was never stopped", same, True
    finished = [[rank["finished"]["losses"], len(rank["finished"]["steps"])] for rank in ranks]
    yield "a third life has nothing left to train", finished, [[[], 0]] * ddp_run.WORLD
    yield "files that are left", ranks[0]["finished"]["files"], [ddp_run.CHECKPOINT]


def _one_process(steps, seed):
    """([(loss, samples)] of each step, weights, momenta) of a training on whole batches, without torch.distributed."""
    images, labels = ddp_run.data(seed)
    watch = ddp_run.Watch(ddp_run.Path("nowhere", "nothing"), len(images))
    torch.manual_seed(seed)
    model = ddp_run.Spy(False, watch)
    weights = list(model.parameters())
    momenta, losses = [torch.zeros_like(w) for w in weights], []
    for samples in steps:
        loss = F.cross_entropy(model(images[samples]), labels[samples])
        losses.append((loss.item(), len(samples)))
        with torch.no_grad():
            for weight, momentum, grad in zip(weights, momenta, torch.autograd.grad(loss, weights), strict=True):
                momentum.mul_(0.9).add_(grad)
                weight.sub_(0.2 * momentum)
    return losses, model.state_dict(), momenta


def _near(seen, expected):
    """True for two lists of the same numbers, but for rounding."""
    return len(seen) == len(expected) and all(abs(s - e) < 1e-4 for s, e in zip(seen, expected, strict=True))


def _same_weights(seen, expected, exact):
    """True for two states of one model; with `exact` to the bit."""
    if seen.keys() != expected.keys():
        return False
    return all(
        torch.equal(seen[k], v) if exact else torch.allclose(seen[k], v, 1e-4, 1e-5) for k, v in expected.items()
    )

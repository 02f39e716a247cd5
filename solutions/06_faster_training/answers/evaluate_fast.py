"""Known mistakes of exercise evaluate_fast, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


def _count(model, batches, device):
    """(hits, a tensor; samples)."""
    hits, total = 0, 0
    for x, y in batches:
        hits = hits + (model(x.to(device)).argmax(1) == y.to(device)).sum()
        total += len(y)
    return hits, total


@mistake(
    "evaluate_fast", "The model stays in train mode: dropout and BatchNorm compute something else. Call model.eval()."
)
def in_train_mode(model, batches, device):
    with torch.inference_mode():
        hits, total = _count(model, batches, device)
    return hits.item() / total


@mistake("evaluate_fast", "The model is left in eval mode, and trains on in it. Note model.training, and restore it.")
def left_in_eval_mode(model, batches, device):
    model.eval()
    with torch.inference_mode():
        hits, total = _count(model, batches, device)
    return hits.item() / total


@mistake(
    "evaluate_fast",
    "The model is put into train mode at the end, whatever it was in before. Note model.training, and restore that.",
)
def always_trains_afterwards(model, batches, device):
    model.eval()
    with torch.inference_mode():
        hits, total = _count(model, batches, device)
    model.train()
    return hits.item() / total


@mistake("evaluate_fast", "Autograd records the forward pass. Run it in torch.inference_mode().")
def with_gradients(model, batches, device):
    training = model.training
    model.eval()
    hits, total = _count(model, batches, device)
    model.train(training)
    return hits.item() / total


@mistake(
    "evaluate_fast", "no_grad still keeps records for views and versions. The task asks for torch.inference_mode()."
)
def with_no_grad(model, batches, device):
    with torch.no_grad():
        return with_gradients(model, batches, device)


@mistake(
    "evaluate_fast", "Each batch waits for the device. Add up the hits as a tensor, and ask for it once, at the end."
)
def asks_in_every_batch(model, batches, device):
    training, hits, total = model.training, 0, 0
    model.eval()
    with torch.inference_mode():
        for x, y in batches:
            hits += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
            total += len(y)
    model.train(training)
    return hits / total


@mistake(
    "evaluate_fast",
    "The mean of the batches' accuracies gives a small last batch too much weight. Divide all hits by all samples.",
)
def mean_of_means(model, batches, device):
    training, means = model.training, []
    model.eval()
    with torch.inference_mode():
        for x, y in batches:
            means.append((model(x.to(device)).argmax(1) == y.to(device)).float().mean())
    model.train(training)
    return torch.stack(means).mean().item()


@mistake(
    "evaluate_fast", "All outputs are kept until the end, so memory grows with the set. Keep the number of hits alone."
)
def keeps_all_outputs(model, batches, device):
    training, outputs, labels = model.training, [], []
    model.eval()
    with torch.inference_mode():
        for x, y in batches:
            outputs.append(model(x.to(device)))
            labels.append(y.to(device))
    model.train(training)
    return (torch.cat(outputs).argmax(1) == torch.cat(labels)).float().mean().item()


@mistake("evaluate_fast", "A tensor is returned. Return a Python float: .item(), once, at the end.")
def returns_a_tensor(model, batches, device):
    training = model.training
    model.eval()
    with torch.inference_mode():
        hits, total = _count(model, batches, device)
    model.train(training)
    return hits / total


@mistake("evaluate_fast", "The accuracy is in percent. Return a share, from 0 to 1.")
def in_percent(model, batches, device):
    training = model.training
    model.eval()
    with torch.inference_mode():
        hits, total = _count(model, batches, device)
    model.train(training)
    return 100 * hits.item() / total


@mistake("evaluate_fast", "Every batch counts as if it were as large as the first. Add up len(y) of each batch.")
def all_batches_alike(model, batches, device):
    training, hits, sizes = model.training, 0, []
    model.eval()
    with torch.inference_mode():
        for x, y in batches:
            hits = hits + (model(x.to(device)).argmax(1) == y.to(device)).sum()
            sizes.append(len(y))
    model.train(training)
    return hits.item() / (len(sizes) * sizes[0])


@alternative("evaluate_fast")
@torch.inference_mode()
def decorated(model, batches, device):
    was = model.training
    try:
        hits, total = _count(model.eval(), batches, device)
        return float(hits / total)
    finally:
        model.train(was)


@alternative("evaluate_fast")
def sums_per_batch(model, batches, device):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    hits, n = [], 0
    with torch.inference_mode():
        for x, y in batches:
            right = model(x.to(device, non_blocking=True)).max(dim=1).indices.eq(y.to(device, non_blocking=True))
            hits.append(right.count_nonzero())
            n += y.shape[0]
        share = torch.stack(hits).sum() / n
    for module, mode in modes.items():
        module.training = mode
    return share.item()

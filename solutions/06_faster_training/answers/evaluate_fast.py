"""Known mistakes of exercise evaluate_fast, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "in_train_mode": (
        "The model stays in train mode: dropout and BatchNorm compute something else. Call model.eval().",
        ("model.eval()", ""),
    ),
    "left_in_eval_mode": (
        "The model is left in eval mode, in which its training then continues. Note model.training, and restore it.",
        ("model.train(training)", ""),
    ),
    "always_trains_afterwards": (
        "The model is put into train mode at the end, whatever it was in before. Note model.training, and restore "
        "that.",
        ("train(training)", "train()"),
    ),
    "with_gradients": (
        "Autograd records the forward pass. Run it in torch.inference_mode().",
        ("torch.inference_mode()", "contextlib.nullcontext()"),
    ),
    "with_no_grad": (
        "no_grad still keeps records for views and versions. The task asks for torch.inference_mode().",
        ("inference_mode", "no_grad"),
    ),
    "asks_in_every_batch": (
        "Each batch waits for the device. Add up the hits as a tensor, and ask for it once, at the end.",
        (".sum()", ".sum().item()"),
        ("correct.item()", "correct"),
    ),
    "mean_of_means": (
        "The mean of the batches' accuracies gives a small last batch too much weight. Divide all hits by all samples.",
        (".sum()", ".float().mean()"),
        ("+= len(y)", "+= 1"),
    ),
    "keeps_all_outputs": (
        "All outputs are kept until the end, so memory grows with the set. Keep only the number of hits.",
        ("correct, total = 0, 0", "outputs, total = [], 0"),
        (
            "correct += (model(x.to(device)).argmax(1) == y.to(device)).sum()",
            "outputs.append((model(x.to(device)), y))",
        ),
        ("correct.item()", "sum((x.argmax(1) == y.to(device)).sum() for x, y in outputs).item()"),
    ),
    "returns_a_tensor": (
        "A tensor is returned. Return a Python float: .item(), once, at the end.",
        ("correct.item()", "correct"),
    ),
    "in_percent": (
        "The accuracy is in percent. Return a share, from 0 to 1.",
        ("return correct", "return 100 * correct"),
    ),
    "all_batches_alike": (
        "Every batch counts as if it were as large as the first. Add up len(y) of each batch.",
        ("correct, total = 0, 0", "correct, total, first = 0, 0, None"),
        ("+= len(y)", "+= (first := first or len(y))"),
    ),
}


@alternative
@torch.inference_mode()
def decorated(model, batches, device):
    was = model.training
    try:
        model.eval()
        hits = [model(x.to(device)).argmax(1) == y.to(device) for x, y in batches]
        return float(torch.cat(hits).float().mean())
    finally:
        model.train(was)


@alternative
def sums_per_batch(model, batches, device):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    hits, n = [], 0
    with torch.inference_mode():
        for x, y in batches:
            right = (
                model(x.to(device, non_blocking=True))
                .max(dim=1)
                .indices.eq(y.to(device, non_blocking=True))
            )
            hits.append(right.count_nonzero())
            n += y.shape[0]
        share = torch.stack(hits).sum() / n
    for module, mode in modes.items():
        module.training = mode
    return share.item()

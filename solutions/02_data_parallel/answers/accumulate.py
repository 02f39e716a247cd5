"""Known mistakes of exercise accumulate, and right answers in other styles."""

import contextlib
import itertools
import math

import torch

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "sum_of_means": (
        "The means of the micro-batches are added: the gradient grows with `every`. Weight each "
        "with its share of samples.",
        (" * len(targets) / samples", ""),
    ),
    "divided_by_every": (
        "Each loss is divided by `every`: right only for full groups of equal micro-batches. Weight each loss with "
        "its share of the group's samples.",
        ("* len(targets) / samples", "/ every"),
    ),
    "mean_of_group_means": (
        "Each micro-batch weighs the same, so samples of a small one weigh more. Weight it with "
        "its share of the samples.",
        ("* len(targets) / samples", "/ len(group)"),
    ),
    "short_group_dropped": (
        "A short last group has no update: its samples are wasted. Let the last slice be short.",
        ("len(batches), every)", "len(batches) - every + 1, every)"),
    ),
    "always_sent": (
        "Gradients are sent after every micro-batch. Run all but the last of a group inside `with no_sync():`.",
        (" if is_last else no_sync()", ""),
    ),
    "never_sent": (
        "All micro-batches are inside no_sync(), so nothing is ever sent. The last one of a group must be outside.",
        ("contextlib.nullcontext() if is_last else ", ""),
    ),
    "first_is_sent": (
        "The first micro-batch of a group is sent and the others are not. It is the last one that sends the whole sum.",
        ("number == len(group)", "number == 1"),
    ),
    "backward_alone": (
        "Only backward is inside no_sync(), but DDP decides at the forward pass whether to send. Put both inside.",
        ("                loss = loss_fn(model(inputs), targets) * len(targets) / samples\n", ""),
        (
            "with contextlib",
            "loss = loss_fn(model(inputs), targets) * len(targets) / samples\n            with contextlib",
        ),
    ),
    "one_backward": (
        "The losses are added and one backward pass runs at the end, so all activations are "
        "kept. Go backward each time.",
        ("optimizer.zero_grad()", "optimizer.zero_grad()\n        total = 0"),
        ("loss = loss_fn", "total = total + loss_fn"),
        ("        loss.backward()", "total.backward()"),
    ),
    "short_group_never_sent": (
        "A short last group is never sent: all of it is inside no_sync(). Its last micro-batch must be outside too.",
        ("number == len(group)", "number == every"),
    ),
    "never_zero": (
        "Gradients are never set to zero, so each update holds all that came before. Call zero_grad().",
        ("optimizer.zero_grad()", "pass"),
    ),
    "zero_each_time": (
        "zero_grad() runs before every micro-batch, so only the last one of a group is left. Call it once a group.",
        ("loss = loss_fn", "optimizer.zero_grad()\n                loss = loss_fn"),
    ),
    "zero_afterwards": (
        "zero_grad() runs after updates only, so the first one holds what lay in grad before. "
        "Call it at the start too.",
        ("optimizer.zero_grad()", "pass"),
        ("optimizer.step()", "optimizer.step()\n        optimizer.zero_grad()"),
    ),
    "micro_batches_counted": (
        "The micro-batches are counted. Count the updates, one a group.",
        ("len(groups)", "len(batches)"),
    ),
    "own_loss": (
        "The loss is always cross-entropy. Call the loss_fn that you are given.",
        ("loss = loss_fn", "loss = F.cross_entropy"),
    ),
}


@mistake(
    "This is the published loop: a step after the first micro-batch, no division, no tail. Form the groups first.",
)
def published(model, batches, loss_fn, optimizer, every, no_sync):
    updates = 0
    optimizer.zero_grad()
    for i, (inputs, targets) in enumerate(batches):
        loss_fn(model(inputs), targets).backward()
        if i % every == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
    return updates


@alternative
def index_by_index(model, batches, loss_fn, optimizer, every, no_sync):
    updates = 0
    for i, (inputs, targets) in enumerate(batches):
        first = i - i % every
        if i == first:
            optimizer.zero_grad(set_to_none=False)
            total = sum(map(len, (t for _, t in batches[first : first + every])))
        last = i + 1 in (first + every, len(batches))
        with contextlib.ExitStack() as stack:
            if not last:
                stack.enter_context(no_sync())
            loss = loss_fn(model(inputs), targets)
            loss.backward(gradient=torch.full_like(loss, len(targets) / total))
        if last:
            optimizer.step()
            updates += 1
    return updates


@alternative
def quiet_ones_together(model, batches, loss_fn, optimizer, every, no_sync):
    def backward(inputs, targets, samples):
        (loss_fn(model(inputs), targets) * (targets.shape[0] / samples)).backward()

    optimizer.zero_grad()
    rest, updates = iter(batches), 0
    while group := list(itertools.islice(rest, every)):
        samples = sum(targets.shape[0] for _, targets in group)
        with no_sync():
            for inputs, targets in group[:-1]:
                backward(inputs, targets, samples)
        backward(*group[-1], samples)
        optimizer.step()
        optimizer.zero_grad()
        updates += 1
    return updates


@alternative
def scaled_before_the_step(model, batches, loss_fn, optimizer, every, no_sync):
    updates = math.ceil(len(batches) / every)
    for k in range(updates):
        optimizer.zero_grad()
        *quiet, loud = batches[k * every : (k + 1) * every]
        seen = 0
        for inputs, targets in quiet:
            with no_sync():
                (loss_fn(model(inputs), targets) * len(targets)).backward()
            seen += len(targets)
        inputs, targets = loud
        (loss_fn(model(inputs), targets) * len(targets)).backward()
        for parameter in model.parameters():
            parameter.grad /= seen + len(targets)
        optimizer.step()
    return updates

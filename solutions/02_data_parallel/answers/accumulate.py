"""Known mistakes of exercise accumulate, and right answers in other styles."""

import contextlib
import itertools
import math

import torch
from torch.nn import functional as F

from course.checks.engine import alternative, mistake


def inside(i, last, no_sync):
    """What the forward and backward pass of micro-batch i of a group belong in."""
    return contextlib.nullcontext() if last else no_sync()


def by_samples(targets, group):
    return len(targets) / sum(len(t) for _, t in group)


def accumulated(
    batches, optimizer, every, no_sync, loss, weight=by_samples, inside=inside, zero_grad=True, tail=True, count=1
):
    """The right loop, with one idea to get wrong each; `loss(inputs, targets)` is that of a micro-batch."""
    updates = 0
    for start in range(0, len(batches), every):
        group = batches[start : start + every]
        if len(group) < every and not tail:
            break
        if zero_grad:
            optimizer.zero_grad()
        for i, (inputs, targets) in enumerate(group):
            with inside(i, i == len(group) - 1, no_sync):
                (loss(inputs, targets) * weight(targets, group)).backward()
        optimizer.step()
        updates += count or len(group)
    return updates


@mistake(
    "accumulate",
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


@mistake(
    "accumulate",
    "The means of the micro-batches are added: the gradient grows with `every`. Weight each with its share of samples.",
)
def sum_of_means(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(
        batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y), weight=lambda targets, group: 1
    )


@mistake(
    "accumulate",
    "Each loss is divided by `every`: right only for full groups of equal micro-batches. Weight each loss with its "
    "share of the group's samples.",
)
def divided_by_every(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(
        batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y), weight=lambda targets, group: 1 / every
    )


@mistake(
    "accumulate",
    "Each micro-batch weighs the same, so samples of a small one weigh more. Weight it with its share of the samples.",
)
def mean_of_group_means(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(
        batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y),
        weight=lambda targets, group: 1 / len(group),
    )  # fmt: skip


@mistake("accumulate", "A short last group has no update: its samples are wasted. Let the last slice be short.")
def short_group_dropped(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y), tail=False)


@mistake(
    "accumulate",
    "Gradients are sent after every micro-batch. Run all but the last of a group inside of `with no_sync():`.",
)
def always_sent(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(
        batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y),
        inside=lambda i, last, no_sync: contextlib.nullcontext(),
    )  # fmt: skip


@mistake(
    "accumulate",
    "All micro-batches are inside of no_sync(), so nothing is ever sent. The last one of a group must be outside.",
)
def never_sent(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(
        batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y),
        inside=lambda i, last, no_sync: no_sync(),
    )  # fmt: skip


@mistake(
    "accumulate",
    "The first micro-batch of a group is sent and the others are not. It is the last one that sends the whole sum.",
)
def first_is_sent(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(
        batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y),
        inside=lambda i, last, no_sync: no_sync() if i else contextlib.nullcontext(),
    )  # fmt: skip


@mistake(
    "accumulate",
    "Only backward is inside of no_sync(), but DDP decides at the forward pass whether to send. Put both inside.",
)
def backward_alone(model, batches, loss_fn, optimizer, every, no_sync):
    updates = 0
    for start in range(0, len(batches), every):
        group = batches[start : start + every]
        optimizer.zero_grad()
        for i, (inputs, targets) in enumerate(group):
            loss = loss_fn(model(inputs), targets) * by_samples(targets, group)
            with inside(i, i == len(group) - 1, no_sync):
                loss.backward()
        optimizer.step()
        updates += 1
    return updates


@mistake(
    "accumulate",
    "The losses are added and one backward pass runs at the end, so all activations are kept. Go backward each time.",
)
def one_backward(model, batches, loss_fn, optimizer, every, no_sync):
    updates = 0
    for start in range(0, len(batches), every):
        group = batches[start : start + every]
        optimizer.zero_grad()
        total = 0.0
        for i, (inputs, targets) in enumerate(group):
            with inside(i, i == len(group) - 1, no_sync):
                total = total + loss_fn(model(inputs), targets) * by_samples(targets, group)
        total.backward()
        optimizer.step()
        updates += 1
    return updates


@mistake(
    "accumulate",
    "A short last group is never sent: all of it is inside of no_sync(). Its last micro-batch must be outside too.",
)
def short_group_never_sent(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(
        batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y),
        inside=lambda i, last, no_sync: contextlib.nullcontext() if i == every - 1 else no_sync(),
    )  # fmt: skip


@mistake("accumulate", "Gradients are never set to zero, so each update holds all that came before. Call zero_grad().")
def never_zero(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y), zero_grad=False)


@mistake(
    "accumulate",
    "zero_grad() runs before every micro-batch, so only the last one of a group is left. Call it once a group.",
)
def zero_each_time(model, batches, loss_fn, optimizer, every, no_sync):
    def loss(inputs, targets):
        optimizer.zero_grad()
        return loss_fn(model(inputs), targets)

    return accumulated(batches, optimizer, every, no_sync, loss)


@mistake(
    "accumulate",
    "zero_grad() runs after updates only, so the first one holds what lay in grad before. Call it at the start too.",
)
def zero_afterwards(model, batches, loss_fn, optimizer, every, no_sync):
    def loss(inputs, targets):
        return loss_fn(model(inputs), targets)

    updates = 0
    for start in range(0, len(batches), every):
        updates += accumulated(batches[start : start + every], optimizer, every, no_sync, loss, zero_grad=False)
        optimizer.zero_grad()
    return updates


@mistake("accumulate", "The micro-batches are counted. Count the updates, one a group.")
def micro_batches_counted(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y), count=0)


@mistake("accumulate", "The loss is always cross-entropy. Call the loss_fn that you are given.")
def own_loss(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(batches, optimizer, every, no_sync, lambda x, y: F.cross_entropy(model(x), y))


@alternative("accumulate")
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


@alternative("accumulate")
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


@alternative("accumulate")
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

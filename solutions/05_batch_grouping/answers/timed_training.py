"""Known mistakes of exercise timed_training, and right answers in other styles."""

import time

import torch

from course.checks.known_answers import alternative

MISTAKES = {
    "no_warm_up": (
        "There is no warm-up: the first timed epoch includes start-up. Train one epoch before the first clock().",
        ("    epoch()\n    seconds", "    seconds"),
    ),
    "not_synchronised": (
        "The clock is read without synchronize() before it, so a GPU may still be computing. Call both, in that order.",
        ("        synchronize()\n        begin", "        begin"),
        ("        synchronize()\n        seconds", "        seconds"),
    ),
    "start_not_synchronised": (
        "synchronize() is missing before the first reading of an epoch: work left from before then counts in it.",
        ("        synchronize()\n        begin", "        begin"),
    ),
    "optimizer_of_another_model": (
        "The optimizer holds copies of the parameters, so the model never changes: the published bug.",
        ("model.parameters()", "[p.detach().clone().requires_grad_() for p in model.parameters()]"),
    ),
    "gradients_pile_up": (
        "Gradients add up from batch to batch. Clear them with optimizer.zero_grad() before each backward.",
        ("optimizer.zero_grad()", "pass"),
    ),
    "summed_loss": (
        "The loss is the sum over the batch, so the gradients grow with the batch size. Take the mean.",
        (".mean()", ".sum()"),
    ),
    "total_alone": (
        "The seconds of the epochs are added up. Return a list with one number per epoch.",
        ("return seconds", "return [sum(seconds)]"),
    ),
    "cleared_once_per_epoch": (
        "Gradients are cleared once per epoch, so they add up from batch to batch. Clear them for every batch.",
        ("            optimizer.zero_grad()\n", ""),
        ("        for inputs", "        optimizer.zero_grad()\n        for inputs"),
    ),
    "never_stepped": (
        "The weights of `model` stay as they were. For every batch: zero_grad(), backward(), step(), in this order.",
        ("optimizer.step()", "pass"),
    ),
    "lr_ignored": (
        "The learning rate `lr` is ignored: SGD uses its default, 0.001. Pass lr=lr.",
        (", lr=lr)", ")"),
    ),
    "adam": (
        "That is Adam. Use plain SGD, so that times and weights can be compared.",
        ("optim.SGD", "optim.Adam"),
    ),
    "timed_per_batch": (
        "Each batch makes its own timing. Read the clock before and after a whole epoch.",
        (
            "    def epoch():\n        for inputs, labels in batches:",
            "    def epoch(some=batches):\n        for inputs, labels in some:",
        ),
        ("    for _ in range(epochs):", "    for batch in batches * epochs:"),
        ("        epoch()", "        epoch([batch])"),
    ),
    "clock_before_synchronize": (
        "The clock is read first and synchronize() comes after it: the wait is outside. synchronize(), then clock().",
        ("        synchronize()\n        begin = clock()", "        begin = clock()\n        synchronize()"),
        (
            "        synchronize()\n        seconds.append(clock() - begin)",
            "        seconds.append(clock() - begin)\n        synchronize()",
        ),
    ),
    "warm_up_timed": (
        "The warm-up epoch is timed and returned, too. Train it without reading the clock.",
        ("    epoch()\n    seconds", "    seconds"),
        ("range(epochs)", "range(epochs + 1)"),
    ),
    "warm_up_of_one_batch": (
        "One batch is not a warm-up epoch: train on all batches once before the first clock().",
        (
            "    def epoch():\n        for inputs, labels in batches:",
            "    def epoch(some=batches):\n        for inputs, labels in some:",
        ),
        ("    epoch()\n    seconds", "    epoch(batches[:1])\n    seconds"),
    ),
    "another_clock": (
        "`clock` is not used: time.perf_counter() is called instead. Read the clock that is given.",
        ("    optimizer =", "    clock = lambda: round(time.perf_counter(), 1)\n    optimizer ="),
    ),
    "warm_up_without_training": (
        "The warm-up runs the model, but does not train: backward and optimizer need a warm-up, too.",
        (
            "    epoch()\n    seconds",
            "    with torch.no_grad():\n        for inputs, _ in batches:\n            model(inputs)\n    seconds",
        ),
    ),
    "with_momentum": (
        "That is SGD with momentum. Use plain SGD, so that times and weights compare.",
        ("lr=lr)", "lr=lr, momentum=0.9)"),
    ),
    "one_reading_per_epoch": (
        "One reading ends an epoch and begins the next. What happens between epochs then counts: read twice per epoch.",
        (
            "    for _ in range(epochs):\n        synchronize()\n        begin = clock()",
            "    synchronize()\n    begin = clock()\n    for _ in range(epochs):",
        ),
        (
            "        seconds.append(clock() - begin)",
            "        end = clock()\n        seconds.append(end - begin)\n        begin = end",
        ),
    ),
}


@alternative
def by_hand(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    def step(inputs, labels):
        model.zero_grad(set_to_none=True)
        torch.mean((labels - model(inputs)) ** 2).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= lr * parameter.grad

    for inputs, labels in batches:
        step(inputs, labels)
    times = []
    for _ in range(epochs):
        synchronize()
        started = clock()
        for inputs, labels in batches:
            step(inputs, labels)
        synchronize()
        times.append(clock() - started)
    return times


@alternative
def cleared_after_the_step(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer = torch.optim.SGD(model.parameters(), lr)
    optimizer.zero_grad()
    seconds = []
    for number in range(epochs + 1):
        if number:
            synchronize()
            begin = clock()
        for inputs, labels in batches:
            torch.nn.functional.mse_loss(model(inputs), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
        if number:
            synchronize()
            seconds.append(clock() - begin)
    return seconds

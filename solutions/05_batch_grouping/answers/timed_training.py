"""Known mistakes of exercise timed_training, and right answers in other styles."""

import time

import torch

from course.checks.engine import alternative, mistake


def _epoch(model, batches, optimizer, clear=True):
    for inputs, labels in batches:
        if clear:
            optimizer.zero_grad()
        (model(inputs) - labels).square().mean().backward()
        optimizer.step()


def _sgd(model, lr):
    return torch.optim.SGD(model.parameters(), lr=lr)


@mistake(
    "timed_training",
    "There is no warm-up: the first timed epoch includes start-up. Train one epoch before the first clock().",
)
def no_warm_up(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer, seconds = _sgd(model, lr), []
    for _ in range(epochs):
        synchronize()
        begin = clock()
        _epoch(model, batches, optimizer)
        synchronize()
        seconds.append(clock() - begin)
    return seconds


@mistake(
    "timed_training",
    "The clock is read without synchronize() before it, so a GPU may still be computing. Call both, in that order.",
)
def not_synchronised(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer, seconds = _sgd(model, lr), []
    _epoch(model, batches, optimizer)
    for _ in range(epochs):
        begin = clock()
        _epoch(model, batches, optimizer)
        seconds.append(clock() - begin)
    return seconds


@mistake(
    "timed_training",
    "synchronize() is missing before the first reading of an epoch: work left from before then counts in it.",
)
def start_not_synchronised(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer, seconds = _sgd(model, lr), []
    _epoch(model, batches, optimizer)
    for _ in range(epochs):
        begin = clock()
        _epoch(model, batches, optimizer)
        synchronize()
        seconds.append(clock() - begin)
    return seconds


@mistake(
    "timed_training",
    "The optimizer holds copies of the parameters, so the model never changes: the published bug.",
)
def optimizer_of_another_model(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    other = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    optimizer, seconds = torch.optim.SGD(other, lr=lr), []
    _epoch(model, batches, optimizer)
    for _ in range(epochs):
        synchronize()
        begin = clock()
        _epoch(model, batches, optimizer)
        synchronize()
        seconds.append(clock() - begin)
    return seconds


@mistake(
    "timed_training",
    "Gradients add up from batch to batch. Clear them with optimizer.zero_grad() before each backward.",
)
def gradients_pile_up(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer, seconds = _sgd(model, lr), []
    _epoch(model, batches, optimizer, clear=False)
    for _ in range(epochs):
        synchronize()
        begin = clock()
        _epoch(model, batches, optimizer, clear=False)
        synchronize()
        seconds.append(clock() - begin)
    return seconds


@mistake(
    "timed_training", "The loss is the sum over the batch, so the gradients grow with the batch size. Take the mean."
)
def summed_loss(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer, seconds = _sgd(model, lr), []
    for number in range(epochs + 1):
        synchronize() if number else None
        begin = clock() if number else 0
        for inputs, labels in batches:
            optimizer.zero_grad()
            (model(inputs) - labels).square().sum().backward()
            optimizer.step()
        synchronize() if number else None
        seconds += [clock() - begin] if number else []
    return seconds


@mistake("timed_training", "The seconds of the epochs are added up. Return a list with one number per epoch.")
def total_alone(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer, seconds = _sgd(model, lr), []
    _epoch(model, batches, optimizer)
    for _ in range(epochs):
        synchronize()
        begin = clock()
        _epoch(model, batches, optimizer)
        synchronize()
        seconds.append(clock() - begin)
    return [sum(seconds)]


def _timed(model, batches, epochs, synchronize, clock, epoch):
    """Seconds of epochs after a warm-up; what mistakes below vary is in `epoch`."""
    epoch()
    seconds = []
    for _ in range(epochs):
        synchronize()
        begin = clock()
        epoch()
        synchronize()
        seconds.append(clock() - begin)
    return seconds


@mistake(
    "timed_training",
    "Gradients are cleared once per epoch, so they add up from batch to batch. Clear them for every batch.",
)
def cleared_once_per_epoch(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer = _sgd(model, lr)

    def epoch():
        optimizer.zero_grad()
        _epoch(model, batches, optimizer, clear=False)

    return _timed(model, batches, epochs, synchronize, clock, epoch)


@mistake(
    "timed_training",
    "The weights of `model` stay as they were. For every batch: zero_grad(), backward(), step(), in this order.",
)
def never_stepped(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    def epoch():
        for inputs, labels in batches:
            model.zero_grad()
            (model(inputs) - labels).square().mean().backward()

    return _timed(model, batches, epochs, synchronize, clock, epoch)


@mistake("timed_training", "The learning rate `lr` is ignored: SGD uses its default, 0.001. Pass lr=lr.")
def lr_ignored(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer = torch.optim.SGD(model.parameters())
    return _timed(model, batches, epochs, synchronize, clock, lambda: _epoch(model, batches, optimizer))


@mistake("timed_training", "That is Adam. Plain SGD was asked for, so that times and weights can be compared.")
def adam(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    return _timed(model, batches, epochs, synchronize, clock, lambda: _epoch(model, batches, optimizer))


@mistake("timed_training", "Each batch makes its own timing. Read the clock before and after a whole epoch.")
def timed_per_batch(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer, seconds = _sgd(model, lr), []
    _epoch(model, batches, optimizer)
    for _ in range(epochs):
        for batch in batches:
            synchronize()
            begin = clock()
            _epoch(model, [batch], optimizer)
            synchronize()
            seconds.append(clock() - begin)
    return seconds


@mistake(
    "timed_training",
    "The clock is read first and synchronize() comes after it, so the wait is outside. synchronize(), then clock().",
)
def clock_before_synchronize(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer, seconds = _sgd(model, lr), []
    _epoch(model, batches, optimizer)
    for _ in range(epochs):
        begin = clock()
        synchronize()
        _epoch(model, batches, optimizer)
        seconds.append(clock() - begin)
        synchronize()
    return seconds


@mistake("timed_training", "The warm-up epoch is timed and returned, too. Train it without reading the clock.")
def warm_up_timed(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer, seconds = _sgd(model, lr), []
    for _ in range(epochs + 1):
        synchronize()
        begin = clock()
        _epoch(model, batches, optimizer)
        synchronize()
        seconds.append(clock() - begin)
    return seconds


@mistake("timed_training", "One batch is no warm-up epoch: train on all batches once before the first clock().")
def warm_up_of_one_batch(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer = _sgd(model, lr)
    turns = iter([batches[:1]])
    return _timed(model, batches, epochs, synchronize, clock, lambda: _epoch(model, next(turns, batches), optimizer))


@mistake("timed_training", "`clock` is not used: time.perf_counter() is called instead. Read the clock that is given.")
def another_clock(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer = _sgd(model, lr)
    return [round(s, 1) for s in _timed(model, batches, epochs, synchronize, time.perf_counter,
                                        lambda: _epoch(model, batches, optimizer))]  # fmt: skip


@alternative("timed_training")
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


@alternative("timed_training")
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


@mistake(
    "timed_training",
    "The warm-up runs the model, but does not train: backward and optimizer need a warm-up, too.",
)
def warm_up_without_training(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer, calls = _sgd(model, lr), []

    def epoch():
        calls.append(1)
        if len(calls) > 1:
            return _epoch(model, batches, optimizer)
        with torch.no_grad():
            for inputs, _ in batches:
                model(inputs)

    return _timed(model, batches, epochs, synchronize, clock, epoch)


@mistake("timed_training", "That is SGD with momentum. Plain SGD was asked for, so that times and weights compare.")
def with_momentum(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    return _timed(model, batches, epochs, synchronize, clock, lambda: _epoch(model, batches, optimizer))


@mistake(
    "timed_training",
    "One reading ends an epoch and begins the next. What happens between epochs then counts: read twice per epoch.",
)
def one_reading_per_epoch(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer, seconds = _sgd(model, lr), []
    _epoch(model, batches, optimizer)
    synchronize()
    begin = clock()
    for _ in range(epochs):
        _epoch(model, batches, optimizer)
        synchronize()
        end = clock()
        seconds.append(end - begin)
        begin = end
    return seconds

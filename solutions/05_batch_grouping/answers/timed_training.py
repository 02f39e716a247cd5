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


@mistake("timed_training", "There is no warm-up: the first timed epoch pays for what the first call of anything loads.")
def no_warm_up(model, batches, lr, epochs, synchronize, clock=time.perf_counter):
    optimizer, seconds = _sgd(model, lr), []
    for _ in range(epochs):
        synchronize()
        begin = clock()
        _epoch(model, batches, optimizer)
        synchronize()
        seconds.append(clock() - begin)
    return seconds


@mistake("timed_training", "The clock is stopped without a synchronize(): a GPU may still be working. Wait, then look.")
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
    "Only the end of an epoch is synchronised. What is left of the epoch before then counts in the next.",
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
    "The optimizer was built on a copy of the model, so the model itself never moves: the published bug.",
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


@mistake("timed_training", "The loss is summed over the batch, not averaged, so each step is as many times too long.")
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

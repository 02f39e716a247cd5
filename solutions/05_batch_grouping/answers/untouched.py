"""Known mistakes of exercise untouched, and right answers in other styles."""

import copy

import torch

from course.checks.engine import alternative, mistake


@mistake(
    "untouched",
    "The values are kept without a copy: they change with the parameters, so nothing seems to move. Clone them.",
)
def kept_without_a_copy(train, model):
    before = {name: parameter.detach() for name, parameter in model.named_parameters()}
    train()
    return [name for name, parameter in model.named_parameters() if torch.equal(parameter, before[name])]


@mistake("untouched", "These are the names of the parameters that moved. Asked are those that did not.")
def those_that_moved(train, model):
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    train()
    return [name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])]


@mistake(
    "untouched", "A parameter without a gradient is held to be untouched. Gradients do not train: compare the values."
)
def those_without_gradients(train, model):
    train()
    return [name for name, parameter in model.named_parameters() if parameter.grad is None]


@mistake(
    "untouched", "Sums are compared. Changes that cancel, and small ones, do not show in a sum: compare all values."
)
def sums_compared(train, model):
    before = {name: parameter.sum().item() for name, parameter in model.named_parameters()}
    train()
    after = {name: parameter.sum().item() for name, parameter in model.named_parameters()}
    return [name for name in before if abs(after[name] - before[name]) < 1e-4]


@mistake(
    "untouched", "A parameter counts as untouched if any of its values stayed. It is untouched only if all of them did."
)
def any_value_stayed(train, model):
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    train()
    return [name for name, parameter in model.named_parameters() if (parameter == before[name]).any()]


@mistake("untouched", "`train` is called twice. Once is enough: each call trains.")
def trained_twice(train, model):
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    train()
    train()
    return [name for name, parameter in model.named_parameters() if torch.equal(parameter, before[name])]


@alternative("untouched")
def with_a_deep_copy(train, model):
    before = copy.deepcopy(model)
    train()
    pairs = zip(before.named_parameters(), model.named_parameters(), strict=True)
    return [name for (name, old), (_, new) in pairs if bool((old == new).all())]


@alternative("untouched")
def with_lists(train, model):
    before = [(name, p.tolist()) for name, p in model.named_parameters()]
    train()
    now = dict(model.named_parameters())
    return [name for name, values in before if now[name].tolist() == values]

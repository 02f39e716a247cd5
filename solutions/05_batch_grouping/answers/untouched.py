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


@mistake(
    "untouched",
    "state_dict() lists buffers, too, such as running means. No optimizer trains them: use named_parameters().",
)
def from_the_state_dict(train, model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    train()
    return [name for name, value in model.state_dict().items() if torch.equal(value, before[name])]


@mistake(
    "untouched",
    "state_dict() holds the values themselves, not copies: they change with the model. Clone each of them.",
)
def state_dict_without_a_copy(train, model):
    before = dict(model.state_dict())
    train()
    return [name for name, value in model.state_dict().items() if torch.equal(value, before[name])]


@mistake(
    "untouched",
    "allclose takes small changes for none. A small learning rate makes small changes: compare with torch.equal.",
)
def compared_with_tolerance(train, model):
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    train()
    return [name for name, parameter in model.named_parameters() if torch.allclose(parameter, before[name])]


@mistake("untouched", "`train` is never called, so nothing can change. Call train() between the two looks.")
def never_trained(train, model):
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
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


@mistake("untouched", "These are the parameters themselves. Return their names, as named_parameters() gives them.")
def parameters_instead_of_names(train, model):
    before = [parameter.detach().clone() for parameter in model.parameters()]
    train()
    return [p for p, old in zip(model.parameters(), before, strict=True) if torch.equal(p, old)]

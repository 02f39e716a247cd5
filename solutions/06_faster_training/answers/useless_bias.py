"""Known mistakes of exercise useless_bias, and right answers in other styles."""

import copy
import itertools

import torch
from torch import nn

from course.checks.engine import alternative, mistake

LAYERS = (nn.Linear, nn.Conv2d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def _pairs(model, layers=LAYERS, norms=NORMS):
    """(layer with a bias, norm behind it) in every nn.Sequential."""
    for part in model.modules():
        if isinstance(part, nn.Sequential):
            for layer, norm in itertools.pairwise(part):
                if isinstance(layer, layers) and isinstance(norm, norms) and layer.bias is not None:
                    yield layer, norm


@mistake(
    "useless_bias",
    "The model that was given lost its biases. Work on copy.deepcopy(model).",
)
def in_place(model):
    for layer, norm in _pairs(model):
        norm.running_mean -= layer.bias.detach()
        layer.bias = None
    return model


@mistake(
    "useless_bias",
    "In training mode the copy is right, in evaluation mode not: the running mean was taken with the bias in it. "
    "Subtract the bias from running_mean.",
)
def running_mean_left(model):
    lean = copy.deepcopy(model)
    for layer, _ in _pairs(lean):
        layer.bias = None
    return lean


@mistake(
    "useless_bias", "The bias was added to running_mean. Without it the mean of the inputs is smaller by the bias."
)
def wrong_sign(model):
    lean = copy.deepcopy(model)
    for layer, norm in _pairs(lean):
        norm.running_mean += layer.bias.detach()
        layer.bias = None
    return lean


@mistake(
    "useless_bias",
    "The bias went into BatchNorm's own bias, which is added after the division. Subtract it from running_mean.",
)
def into_the_norms_bias(model):
    lean = copy.deepcopy(model)
    for layer, norm in _pairs(lean):
        norm.bias.data += layer.bias.data
        layer.bias = None
    return lean


@mistake("useless_bias", "The bias was subtracted with its graph, so running_mean has one, too. Take bias.detach().")
def with_a_graph(model):
    lean = copy.deepcopy(model)
    for layer, norm in _pairs(lean):
        norm.running_mean -= layer.bias
        layer.bias = None
    return lean


@mistake("useless_bias", "Only the outermost nn.Sequential was searched. model.modules() gives the inner ones, too.")
def outermost_only(model):
    lean = copy.deepcopy(model)
    for layer, norm in itertools.pairwise(lean):
        if isinstance(layer, LAYERS) and isinstance(norm, NORMS) and layer.bias is not None:
            norm.running_mean -= layer.bias.detach()
            layer.bias = None
    return lean


@mistake(
    "useless_bias",
    "Every Linear and Conv2d lost its bias. Only one that comes right before a BatchNorm does nothing.",
)
def every_convolution(model):
    lean = copy.deepcopy(model)
    for part in lean.modules():
        if isinstance(part, LAYERS):
            part.bias = None
    return lean


@mistake("useless_bias", "Convolutions were found; a Linear before a BatchNorm1d was not.")
def convolutions_only(model):
    lean = copy.deepcopy(model)
    for layer, norm in _pairs(lean, (nn.Conv2d,), (nn.BatchNorm2d,)):
        norm.running_mean -= layer.bias.detach()
        layer.bias = None
    return lean


@mistake(
    "useless_bias",
    "A bias before GroupNorm or LayerNorm went, too. These take the mean over several channels, so they do not remove "
    "it.",
)
def any_norm(model):
    lean = copy.deepcopy(model)
    for layer, norm in _pairs(lean, norms=(*NORMS, nn.GroupNorm, nn.LayerNorm)):
        if isinstance(norm, NORMS):
            norm.running_mean -= layer.bias.detach()
        layer.bias = None
    return lean


@mistake(
    "useless_bias",
    "Neighbours were sought among all modules in a row. model.modules() does not say in which order layers run; only "
    "nn.Sequential runs its layers one after the other.",
)
def all_modules_in_a_row(model):
    lean = copy.deepcopy(model)
    for layer, norm in itertools.pairwise(lean.modules()):
        if isinstance(layer, LAYERS) and isinstance(norm, NORMS) and layer.bias is not None:
            norm.running_mean -= layer.bias.detach()
            layer.bias = None
    return lean


@mistake("useless_bias", "The biases were set to 0. They are still parameters: set layer.bias = None.")
def zeroed(model):
    lean = copy.deepcopy(model)
    for layer, norm in _pairs(lean):
        norm.running_mean -= layer.bias.detach()
        nn.init.zeros_(layer.bias)
    return lean


@alternative("useless_bias")
def by_name(model):
    lean = copy.deepcopy(model)
    for part in list(lean.modules()):
        children = list(part.named_children()) if isinstance(part, nn.Sequential) else []
        for (_, layer), (_, norm) in zip(children, children[1:], strict=False):
            if type(layer) in LAYERS and type(norm) in NORMS and layer.bias is not None:
                with torch.no_grad():
                    norm.running_mean.sub_(layer.bias)
                layer.register_parameter("bias", None)
    return lean


@alternative("useless_bias")
def with_new_layers(model):
    def rebuilt(part):
        children = list(part.children())
        if not isinstance(part, nn.Sequential):
            return copy.deepcopy(part)
        new = [rebuilt(child) for child in children]
        for place in range(len(new) - 1):
            layer, norm = new[place : place + 2]
            if isinstance(layer, LAYERS) and isinstance(norm, NORMS) and layer.bias is not None:
                norm.running_mean = norm.running_mean - layer.bias.detach()
                del layer.bias
                layer.bias = None
        return nn.Sequential(*new)

    return rebuilt(model)

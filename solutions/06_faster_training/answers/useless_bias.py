"""Known mistakes of exercise useless_bias, and right answers in other styles."""

import copy

import torch
from torch import nn

from course.engine.known_answers import alternative

SUBTRACT = "norm.running_mean -= layer.bias.detach()"
MISTAKES = {
    "in_place": (
        "The model that was given lost its biases. Work on copy.deepcopy(model).",
        ("copy.deepcopy(model)", "model"),
    ),
    "running_mean_left": (
        "The copy is right in training mode but not in evaluation mode, because the running mean includes the bias. "
        "Subtract the bias from running_mean.",
        (SUBTRACT, ""),
    ),
    "wrong_sign": (
        "The bias was added to running_mean. Without it the mean of the inputs is smaller by the bias.",
        ("-=", "+="),
    ),
    "into_the_norms_bias": (
        "The bias went into BatchNorm's own bias, which is added after the division. Subtract it from running_mean.",
        (SUBTRACT, "norm.bias.data += layer.bias.data"),
    ),
    "with_a_graph": (
        "The bias was subtracted with its graph, so running_mean has one, too. Take bias.detach().",
        (".detach()", ""),
    ),
    "outermost_only": (
        "Only the outermost nn.Sequential was searched. model.modules() gives the inner ones, too.",
        ("lean.modules()", "[lean]"),
    ),
    "every_convolution": (
        "Every Linear and Conv2d lost its bias. Only one that comes right before a BatchNorm does nothing.",
        ("itertools.pairwise(part) if isinstance(part, nn.Sequential) else []", "[(part, part)]"),
        (" and isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d))", ""),
        (SUBTRACT, ""),
    ),
    "convolutions_only": (
        "Convolutions were found; a Linear before a BatchNorm1d was not.",
        ("(nn.Linear, nn.Conv2d)", "nn.Conv2d"),
    ),
    "any_norm": (
        "A bias before GroupNorm or LayerNorm was removed, too. These take the mean over several channels, so they "
        "do not "
        "remove it.",
        ("nn.BatchNorm2d)", "nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)"),
        (SUBTRACT, f"if hasattr(norm, 'running_mean'): {SUBTRACT}"),
    ),
    "all_modules_in_a_row": (
        "You look for neighbours among all modules in a row. model.modules() does not say in which order layers run; "
        "only nn.Sequential runs its layers one after the other.",
        ("in lean.modules()", "in [lean.modules()]"),
        (" if isinstance(part, nn.Sequential) else []", ""),
    ),
    "zeroed": (
        "The biases were set to 0. They are still parameters: set layer.bias = None.",
        ("layer.bias = None", "nn.init.zeros_(layer.bias)"),
    ),
}
LAYERS = (nn.Linear, nn.Conv2d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


@alternative
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


@alternative
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

"""Known mistakes of exercise neumf_forward, and right answers in other styles."""

import torch
from torch.nn import functional as F

from course.engine.known_answers import alternative

MISTAKES = {
    "sigmoid_at_the_end": (
        "A sigmoid makes probabilities of the logits. Leave it to the loss, which has it built in.",
        ("squeeze(1)", "squeeze(1).sigmoid()"),
    ),
    "last_layer_linear": (
        "The last MLP layer has no ReLU. Here one follows every layer of the MLP, the last included.",
        ('in weights["mlp"]:', 'in weights["mlp"][:-1]:'),
        (
            "    weight, bias =",
            '    hidden = F.linear(hidden, *weights["mlp"][-1])\n    weight, bias =',
        ),
    ),
    "halves_swapped": (
        "The MLP half comes before the GMF half at the output layer. Concatenate them as [gmf, mlp].",
        ("[gmf, hidden]", "[hidden, gmf]"),
    ),
    "item_before_user": (
        "The item's vector comes before the user's in the MLP. Concatenate them as [user, item].",
        ("[items]], dim=1)", "[items]][::-1], dim=1)"),
    ),
    "gmf_adds": (
        "The GMF half adds the two vectors. It is their product, element by element: use *.",
        ("[users] * weights", "[users] + weights"),
    ),
    "batch_axis_squeezed_too": (
        "squeeze() drops every axis of length 1, the batch of one pair included. Name the axis: squeeze(1).",
        ("squeeze(1)", "squeeze()"),
    ),
    "cut_off_from_autograd": (
        "The result is detached from the weights, so nothing can be trained. Leave out no_grad, .data, detach.",
        ("squeeze(1)", "squeeze(1).detach()"),
    ),
    "dot_product": (
        "The GMF half is summed up, as in matrix factorisation. The output layer weighs its F products: concatenate.",
        (
            "F.linear(torch.cat([gmf, hidden], dim=1), weight, bias).squeeze(1)",
            "gmf.sum(1) + hidden @ weight[0, gmf.shape[1] :] + bias",
        ),
    ),
}


@alternative
def two_sums(weights, users, items):
    (output, shift), factors = weights["output"], weights["gmf_user"].shape[1]
    x = torch.hstack(
        (F.embedding(users, weights["mlp_user"]), F.embedding(items, weights["mlp_item"]))
    )
    for w, b in weights["mlp"]:
        x = (x @ w.T + b).clamp(min=0)
    product = F.embedding(users, weights["gmf_user"]) * F.embedding(items, weights["gmf_item"])
    return product @ output[0, :factors] + x @ output[0, factors:] + shift


@alternative
def pair_by_pair(weights, users, items):
    logits = []
    for u, i in zip(users.tolist(), items.tolist(), strict=True):
        hidden = torch.cat((weights["mlp_user"][u], weights["mlp_item"][i]))
        for w, b in weights["mlp"]:
            hidden = torch.relu(torch.mv(w, hidden) + b)
        both = torch.cat((weights["gmf_user"][u] * weights["gmf_item"][i], hidden))
        logits.append(torch.dot(weights["output"][0][0], both) + weights["output"][1][0])
    return torch.stack(logits)

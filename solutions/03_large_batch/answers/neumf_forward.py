"""Known mistakes of exercise neumf_forward, and right answers in other styles."""

import torch
from torch import nn
from torch.nn import functional as F

from course.checks.engine import alternative, mistake


def neumf(weights, users, items, last_relu=True, gmf_first=True, user_first=True, together=torch.mul):
    """NeuMF with one idea to get wrong each; logits of shape (n, 1)."""
    gmf = together(weights["gmf_user"][users], weights["gmf_item"][items])
    pair = [weights["mlp_user"][users], weights["mlp_item"][items]]
    hidden = torch.cat(pair if user_first else pair[::-1], dim=1)
    for place, (weight, bias) in enumerate(weights["mlp"]):
        hidden = F.linear(hidden, weight, bias)
        if last_relu or place < len(weights["mlp"]) - 1:
            hidden = F.relu(hidden)
    halves = [gmf, hidden] if gmf_first else [hidden, gmf]
    return F.linear(torch.cat(halves, dim=1), *weights["output"])


@mistake("neumf_forward", "A sigmoid makes probabilities of the logits. Leave it to the loss, which has it built in.")
def sigmoid_at_the_end(weights, users, items):
    return torch.sigmoid(neumf(weights, users, items)).squeeze(1)


@mistake("neumf_forward", "The last MLP layer has no ReLU. Here one follows every layer of the MLP, the last included.")
def last_layer_linear(weights, users, items):
    return neumf(weights, users, items, last_relu=False).squeeze(1)


@mistake("neumf_forward", "The MLP half comes before the GMF half at the output layer. Concatenate them as [gmf, mlp].")
def halves_swapped(weights, users, items):
    return neumf(weights, users, items, gmf_first=False).squeeze(1)


@mistake("neumf_forward", "The item's vector comes before the user's in the MLP. Concatenate them as [user, item].")
def item_before_user(weights, users, items):
    return neumf(weights, users, items, user_first=False).squeeze(1)


@mistake("neumf_forward", "The GMF half adds the two vectors. It is their product, element by element: use *.")
def gmf_adds(weights, users, items):
    return neumf(weights, users, items, together=torch.add).squeeze(1)


@mistake(
    "neumf_forward",
    "squeeze() drops every axis of length 1, the batch of one pair included. Name the axis: squeeze(1).",
)
def batch_axis_squeezed_too(weights, users, items):
    return neumf(weights, users, items).squeeze()


@mistake(
    "neumf_forward",
    "The result is detached from the weights, so nothing can be trained. Leave out no_grad, .data, detach.",
)
def cut_off_from_autograd(weights, users, items):
    with torch.no_grad():
        return neumf(weights, users, items).squeeze(1)


@alternative("neumf_forward")
def two_sums(weights, users, items):
    (output, shift), factors = weights["output"], weights["gmf_user"].shape[1]
    x = torch.hstack((F.embedding(users, weights["mlp_user"]), F.embedding(items, weights["mlp_item"])))
    for w, b in weights["mlp"]:
        x = (x @ w.T + b).clamp(min=0)
    product = F.embedding(users, weights["gmf_user"]) * F.embedding(items, weights["gmf_item"])
    return product @ output[0, :factors] + x @ output[0, factors:] + shift


@alternative("neumf_forward")
def pair_by_pair(weights, users, items):
    logits = []
    for u, i in zip(users.tolist(), items.tolist(), strict=True):
        hidden = torch.cat((weights["mlp_user"][u], weights["mlp_item"][i]))
        for w, b in weights["mlp"]:
            hidden = torch.relu(torch.mv(w, hidden) + b)
        both = torch.cat((weights["gmf_user"][u] * weights["gmf_item"][i], hidden))
        logits.append(torch.dot(weights["output"][0][0], both) + weights["output"][1][0])
    return torch.stack(logits)


@alternative("neumf_forward")
def modules_called_with_weights(weights, users, items):
    layers = []
    for w, _ in weights["mlp"]:
        layers += [nn.Linear(w.shape[1], w.shape[0]), nn.ReLU()]
    named = {
        f"{2 * i}.{name}": t
        for i, pair in enumerate(weights["mlp"])
        for name, t in zip(("weight", "bias"), pair, strict=True)
    }
    rows = torch.cat((weights["mlp_user"][users], weights["mlp_item"][items]), -1)
    hidden = torch.func.functional_call(nn.Sequential(*layers), named, (rows,))
    gmf = weights["gmf_user"][users].mul(weights["gmf_item"][items])
    return F.linear(torch.cat((gmf, hidden), -1), *weights["output"])[:, 0]

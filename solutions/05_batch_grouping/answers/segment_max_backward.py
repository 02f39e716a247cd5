"""Known mistakes of exercise segment_max_backward, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "everyone_gets_it": (
        "Every token of a sequence gets the gradient. Only the one that reaches the maximum does.",
        ("reached * (grad / times)[owner]", "grad[owner]"),
    ),
    "ties_count_twice": (
        "Equal maxima get the whole gradient each. Together they may get it once: divide, or choose one.",
        ("(grad / times)", "grad"),
    ),
    "any_maximum": (
        "A token is compared with all maxima of the batch. Compare it with that of its own sequence.",
        ("values == maxima.repeat_interleave(lengths, 0)", "(values[:, None] == maxima).any(1)"),
    ),
    "one_token_for_all_features": (
        "One token per sequence gets the gradient of all features. Each feature has its own largest token.",
        ("(lengths, 0)\n", "(lengths, 0)\n    reached = reached[:, :1].expand_as(values)\n"),
    ),
    "times_the_value": (
        "The gradient is multiplied by the token's value. The derivative of a maximum is 1 or 0.",
        ("reached * (", "reached * values * ("),
    ),
    "gradients_of_others": (
        "repeat tiles the whole block, so tokens get the gradients of others. Use repeat_interleave(lengths, 0), "
        "which repeats each row.",
        ("(grad / times)[owner]", "(grad / times).repeat(-(-len(values) // len(grad)), 1)[: len(values)]"),
    ),
    "marks_only": (
        "That marks the tokens that reach the maximum. Multiply by the gradient of their sequence.",
        ("reached * (grad / times)[owner]", "reached.to(grad.dtype)"),
    ),
    "divided_by_all": (
        "The gradient is divided by all tokens of the batch that reach a maximum. Count those of the sequence alone.",
        ("(grad / times)[owner]", "grad[owner] / reached.sum(0)"),
    ),
    "gradient_of_the_mean": (
        "That is the gradient of a mean: every token gets a share. Only the one that reaches the maximum gets it.",
        ("reached * (grad / times)[owner]", "(grad / lengths[:, None])[owner]"),
    ),
}


@mistake("`argmax` counts from the beginning of the sequence. Add where the sequence begins in the flat batch.")
def place_in_the_sequence(grad, values, maxima, lengths):
    found = torch.zeros_like(values)
    for row, part in enumerate(values.split(lengths.tolist())):
        found[part.argmax(0), torch.arange(values.shape[1], device=values.device)] = grad[row]
    return found


@alternative
def the_first_gets_all(grad, values, maxima, lengths):
    found, start = torch.zeros_like(values), 0
    for row, length in enumerate(lengths.tolist()):
        first = values[start : start + length].argmax(0)
        found[start + first, torch.arange(values.shape[1], device=values.device)] = grad[row]
        start += length
    return found


@alternative
def by_autograd(grad, values, maxima, lengths):
    with torch.enable_grad():
        leaf = values.detach().clone().requires_grad_()
        torch.stack([part.amax(0) for part in leaf.split(lengths.tolist())]).backward(grad)
    return leaf.grad

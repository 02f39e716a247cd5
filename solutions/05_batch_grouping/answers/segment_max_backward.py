"""Known mistakes of exercise segment_max_backward, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


def _owner(lengths):
    return torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)


@mistake(
    "segment_max_backward",
    "Every token of a sequence gets the gradient. Only the one that reaches the maximum does.",
)
def everyone_gets_it(grad, values, maxima, lengths):
    return grad[_owner(lengths)]


@mistake(
    "segment_max_backward",
    "Equal maxima get the whole gradient each. Together they may get it once: divide, or choose one.",
)
def ties_count_twice(grad, values, maxima, lengths):
    owner = _owner(lengths)
    return (values == maxima[owner]) * grad[owner]


@mistake(
    "segment_max_backward",
    "A token is compared with all maxima of the batch. Compare it with that of its own sequence.",
)
def any_maximum(grad, values, maxima, lengths):
    reached = (values[:, None] == maxima[None]).any(1)
    owner = _owner(lengths)
    times = torch.zeros_like(maxima).index_add(0, owner, reached.to(maxima.dtype)).clamp(min=1)
    return reached * (grad / times)[owner]


@mistake(
    "segment_max_backward",
    "The gradient goes to one token per sequence for all features. Each feature has a largest token of its own.",
)
def one_token_for_all_features(grad, values, maxima, lengths):
    found, start = torch.zeros_like(values), 0
    for row, length in enumerate(lengths.tolist()):
        found[start + int(values[start : start + length, 0].argmax())] = grad[row]
        start += length
    return found


@mistake(
    "segment_max_backward",
    "The gradient is multiplied by the token's value. The derivative of a maximum is 1 or 0.",
)
def times_the_value(grad, values, maxima, lengths):
    owner = _owner(lengths)
    reached = values == maxima[owner]
    times = torch.zeros_like(maxima).index_add(0, owner, reached.to(maxima.dtype))
    return reached * values * (grad / times)[owner]


@mistake(
    "segment_max_backward",
    "`argmax` counts from the beginning of the sequence. Add where the sequence begins in the flat batch.",
)
def place_in_the_sequence(grad, values, maxima, lengths):
    found = torch.zeros_like(values)
    for row, part in enumerate(values.split(lengths.tolist())):
        found[part.argmax(0), torch.arange(values.shape[1], device=values.device)] = grad[row]
    return found


@mistake(
    "segment_max_backward",
    "repeat lays the gradients of all sequences one after the other, again and again, so tokens get those of others. "
    "repeat_interleave(lengths, 0) gives each token that of its own sequence.",
)
def gradients_of_others(grad, values, maxima, lengths):
    owner = _owner(lengths)
    reached = (values == maxima[owner]).to(values.dtype)
    times = torch.zeros_like(maxima).index_add(0, owner, reached)
    return reached * (grad / times).repeat(-(-len(values) // len(grad)), 1)[: len(values)]


@mistake(
    "segment_max_backward",
    "That marks the tokens that reach the maximum. Multiply by the gradient of their sequence.",
)
def marks_only(grad, values, maxima, lengths):
    return (values == maxima[_owner(lengths)]).to(grad.dtype)


@mistake(
    "segment_max_backward",
    "The gradient is divided by all tokens of the batch that reach a maximum. Count those of the sequence alone.",
)
def divided_by_all(grad, values, maxima, lengths):
    owner = _owner(lengths)
    reached = values == maxima[owner]
    return reached * grad[owner] / reached.sum(0)


@mistake(
    "segment_max_backward",
    "That is the gradient of a mean: every token gets a share. Only the one that reaches the maximum gets it.",
)
def gradient_of_the_mean(grad, values, maxima, lengths):
    return (grad / lengths[:, None])[_owner(lengths)]


@alternative("segment_max_backward")
def the_first_gets_all(grad, values, maxima, lengths):
    found, start = torch.zeros_like(values), 0
    for row, length in enumerate(lengths.tolist()):
        first = values[start : start + length].argmax(0)
        found[start + first, torch.arange(values.shape[1], device=values.device)] = grad[row]
        start += length
    return found


@alternative("segment_max_backward")
def by_autograd(grad, values, maxima, lengths):
    with torch.enable_grad():
        leaf = values.detach().clone().requires_grad_()
        torch.stack([part.amax(0) for part in leaf.split(lengths.tolist())]).backward(grad)
    return leaf.grad

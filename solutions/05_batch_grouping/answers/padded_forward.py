"""Known mistakes of exercise padded_forward, and right answers in other styles."""

import math

import torch

from course.checks.engine import alternative, mistake


@mistake(
    "padded_forward", "The padding takes part in the maximum. Fill it with minus infinity before you take the maximum."
)
def mask_ignored(model, x, mask):
    return model.score(model.features(x).amax(1))


@mistake(
    "padded_forward", "The padding is filled with 0, which wins wherever all features are negative. Use minus infinity."
)
def filled_with_zero(model, x, mask):
    return model.score(model.features(x).masked_fill(~mask[..., None], 0).amax(1))


@mistake(
    "padded_forward", "The tokens are masked instead of the features. Token 0 has features like any other: mask those."
)
def tokens_masked(model, x, mask):
    return model.score(model.features(x * mask).amax(1))


@mistake("padded_forward", "That is the mean over the real tokens. The model takes the maximum of each feature.")
def mean_instead(model, x, mask):
    kept = model.features(x) * mask[..., None]
    return model.score(kept.sum(1) / mask.sum(1, keepdim=True))


@mistake(
    "padded_forward",
    "The scores have one dimension too many: (n, 1). model.score gives (n,) for the maxima (n, hidden).",
)
def kept_dimension(model, x, mask):
    return model.score(model.features(x).masked_fill(~mask[..., None], -math.inf).amax(1, keepdim=True))


@mistake("padded_forward", "The mask is inverted: the tokens are filled, the padding is kept. Fill where ~mask.")
def inverted_mask(model, x, mask):
    return model.score(model.features(x).masked_fill(mask[..., None], -math.inf).amax(1))


@mistake(
    "padded_forward",
    "The padding is filled with infinity, so it is always the maximum. Fill it with minus infinity.",
)
def filled_with_infinity(model, x, mask):
    return model.score(model.features(x).masked_fill(~mask[..., None], math.inf).amax(1))


@mistake(
    "padded_forward",
    "The scores of all tokens are computed, and the largest is taken. Take the maximum of the features first, then "
    "score it.",
)
def largest_score(model, x, mask):
    return model.score(model.features(x)).masked_fill(~mask, -math.inf).amax(1)


@mistake(
    "padded_forward",
    "That is the sum over the tokens. The model takes the maximum of each feature.",
)
def sum_instead(model, x, mask):
    return model.score((model.features(x) * mask[..., None]).sum(1))


@mistake(
    "padded_forward",
    "That is the last token of each row. The model takes the maximum of each feature over all tokens.",
)
def last_token(model, x, mask):
    features = model.features(x)
    return model.score(features[torch.arange(len(x), device=x.device), mask.sum(1) - 1])


@mistake("padded_forward", "The features are detached, so no gradient reaches the weights. Keep them in the graph.")
def detached(model, x, mask):
    with torch.no_grad():
        features = model.features(x).masked_fill(~mask[..., None], -math.inf).amax(1)
    return model.score(features)


@alternative("padded_forward")
def where_and_max(model, x, mask):
    features = model.features(x)
    lowest = torch.tensor(-math.inf, device=x.device, dtype=features.dtype)
    return model.score(torch.where(mask.unsqueeze(-1), features, lowest).max(dim=1).values)


@mistake(
    "padded_forward", "The padding gets a number that features may fall below. Minus infinity is below all of them."
)
def filled_with_minus_a_hundred(model, x, mask):
    return model.score(model.features(x).masked_fill(~mask[..., None], -100.0).amax(1))


@alternative("padded_forward")
def row_by_row(model, x, mask):
    return model.score(torch.stack([model.features(row[real]).amax(0) for row, real in zip(x, mask, strict=True)]))


@alternative("padded_forward")
def lowered_by_addition(model, x, mask):
    low = torch.zeros(mask.shape, device=x.device).masked_fill(~mask, -math.inf)
    return model.score((model.features(x) + low[..., None]).amax(-2))

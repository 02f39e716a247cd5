"""Known mistakes of exercise padded_forward, and right answers in other styles."""

import math

import torch

from course.checks.known_answers import alternative

MISTAKES = {
    "mask_ignored": (
        "The padding takes part in the maximum. Fill it with minus infinity before you take the maximum.",
        ('.masked_fill(~mask[..., None], float("-inf"))', ""),
    ),
    "filled_with_zero": (
        "The padding is filled with 0, which wins wherever all features are negative. Use minus infinity.",
        ('float("-inf")', "0"),
    ),
    "tokens_masked": (
        "The tokens are masked instead of the features. Token 0 has features like any other: mask those.",
        ("features(x)", "features(x * mask)"),
        ('.masked_fill(~mask[..., None], float("-inf"))', ""),
    ),
    "mean_instead": (
        "That is the mean over the real tokens. The model takes the maximum of each feature.",
        ('float("-inf")', "0"),
        ("features.amax(1)", "features.sum(1) / mask.sum(1, keepdim=True)"),
    ),
    "kept_dimension": (
        "The scores have one dimension too many: (n, 1). model.score gives (n,) for the maxima (n, hidden).",
        ("amax(1)", "amax(1, keepdim=True)"),
    ),
    "inverted_mask": (
        "The mask is inverted: the tokens are filled, the padding is kept. Fill where ~mask.",
        ("~mask", "mask"),
    ),
    "filled_with_infinity": (
        "The padding is filled with infinity, so it is always the maximum. Fill it with minus infinity.",
        ('"-inf"', '"inf"'),
    ),
    "largest_score": (
        "All tokens are scored, and the largest score is taken. Take the maximum of the features first, then score it.",
        ('.masked_fill(~mask[..., None], float("-inf"))', ""),
        ("features.amax(1))", 'features).masked_fill(~mask, float("-inf")).amax(1)'),
    ),
    "sum_instead": (
        "That is the sum over the tokens. The model takes the maximum of each feature.",
        ('float("-inf")', "0"),
        ("amax(1)", "sum(1)"),
    ),
    "last_token": (
        "That is the last token of each row. The model takes the maximum of each feature over all tokens.",
        ("features.amax(1)", "features[torch.arange(len(x), device=x.device), mask.sum(1) - 1]"),
    ),
    "detached": (
        "The features are detached, so no gradient reaches the weights. Keep them in the graph.",
        ("features.amax(1)", "features.amax(1).detach()"),
    ),
    "filled_with_minus_a_hundred": (
        "The padding gets a number that features may fall below. Minus infinity is below all of them.",
        ('float("-inf")', "-100.0"),
    ),
}


@alternative
def row_by_row(model, x, mask):
    return model.score(torch.stack([model.features(row[real]).amax(0) for row, real in zip(x, mask, strict=True)]))


@alternative
def lowered_by_addition(model, x, mask):
    low = torch.zeros(mask.shape, device=x.device).masked_fill(~mask, -math.inf)
    return model.score((model.features(x) + low[..., None]).amax(-2))

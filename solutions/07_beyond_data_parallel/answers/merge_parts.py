"""Known mistakes of exercise merge_parts, and right answers in other styles."""

import math

import torch

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "not_rescaled": (
        "The parts are added as they came, though each is relative to its own maximum. Multiply each by "
        "exp(its maximum - the highest one).",
        ("torch.exp(maxima - highest)", "torch.ones_like(maxima)"),
    ),
    "denominators_as_they_came": (
        "The denominators are added without their scales. Scale them as the numerators.",
        ("(scales * denominators)", "denominators"),
    ),
    "numerators_as_they_came": (
        "The numerators are added without their scales. Scale them as the denominators.",
        ("(scales[..., None] * numerators)", "numerators"),
    ),
    "wrong_sign": (
        "Parts with a low maximum count the most: the sign of the exponent is wrong. Use exp(its maximum - the highest "
        "one).",
        ("maxima - highest", "highest - maxima"),
    ),
    "not_divided": (
        "The attention weights of a query do not add up to 1. Divide by the scaled denominators.",
        (" / total.clamp(min=1)[:, None]", ""),
    ),
    "overflow": (
        "exp of a large maximum is inf, and of a very negative one 0. Subtract the query's highest maximum first.",
        ("maxima - highest", "maxima"),
    ),
    "nan_rows": (
        "A query that sees no key gets NaN, because -inf - -inf is NaN. Return zeros there.",
        (".clamp(min=torch.finfo(maxima.dtype).min)", ""),
    ),
    "one_maximum_for_all": (
        "One maximum serves all queries, so scales of other queries underflow to 0. Take the highest per query.",
        ("maxima.amax(0)", "maxima.amax()"),
    ),
    "highest_at_least_zero": (
        "The highest maximum is taken to be at least 0, so all scales of very negative scores underflow to 0. Clamp it "
        "at the most negative float, which only -inf is below.",
        (".clamp(min=torch.finfo(maxima.dtype).min)", ".clamp(min=0)"),
        ("total.clamp(min=1)", "total.clamp(min=1e-30)"),
    ),
    "one_maximum_for_every_query": (
        "One maximum serves all queries, so scales of other queries underflow to 0. Take the highest of each query.",
        ("maxima.amax(0)", "maxima.amax()"),
        ("total.clamp(min=1)", "total.clamp(min=1e-30)"),
    ),
    "small_number_added": (
        "A small number is added to each denominator, so all results are a little too small. Clamp the denominators.",
        ("total.clamp(min=1)[:, None]", "(total + 1e-6)[:, None]"),
    ),
    "smaller_number_added": (
        "A small number is added to each denominator, so all results come out too small. Clamp the denominators.",
        ("total.clamp(min=1)[:, None]", "(total + 1e-8)[:, None]"),
    ),
    "a_thousandth_added": (
        "A small number is added to each denominator, so all results are too small. Clamp the denominators instead.",
        ("total.clamp(min=1)[:, None]", "(total + 1e-3)[:, None]"),
    ),
    "a_hundred_thousandth_added": (
        "A small number is added to each denominator, so all results are too small. Clamp the denominators instead.",
        ("total.clamp(min=1)[:, None]", "(total + 1e-5)[:, None]"),
    ),
    "highest_from_zero": (
        "The highest maximum is taken to be at least 0, so all scales of very negative scores underflow to 0. Clamp it "
        "at the most negative float, which only -inf is below.",
        (".clamp(min=torch.finfo(maxima.dtype).min)", ".clamp(min=0)"),
    ),
    "masked_ranks_left_out": (
        "A rank is left out if one query sees none of its keys, so other queries lose these keys. Give that query the "
        "scale 0.",
        (
            "torch.exp(maxima - highest)",
            "torch.exp(maxima - highest) * (denominators > 0).all(1, keepdim=True)",
        ),
    ),
    "overflow_and_a_small_clamp": (
        "exp of a large maximum is inf, and of a very negative one 0. Subtract the query's highest maximum first.",
        ("maxima - highest", "maxima"),
        ("total.clamp(min=1)", "total.clamp(min=1e-30)"),
    ),
    "one_maximum_and_no_nan": (
        "One maximum serves all queries, so scales of other queries underflow to 0. Take the highest of each query.",
        ("maxima.amax(0)", "maxima.amax()"),
        ("merged / total.clamp(min=1)[:, None]", "(merged / total[:, None]).nan_to_num()"),
    ),
}


@mistake(
    "This is the mean of the ranks' outputs. Ranks with larger scores weigh more: scale, add, then divide."
)
def mean_of_outputs(numerators, denominators, maxima):
    outputs = numerators / denominators.clamp(min=1)[..., None]
    return outputs.mean(0)


@mistake(
    "Each rank's output is weighted by exp(its maximum) alone, however many keys it has. Its weight is that times its "
    "denominator."
)
def weighted_by_the_maximum(numerators, denominators, maxima):
    outputs = numerators / denominators.clamp(min=1)[..., None]
    weights = maxima.softmax(0).nan_to_num()
    return (weights[..., None] * outputs).sum(0)


@mistake("Only the rank with the highest maximum counts. The others' keys have weights, too.")
def highest_alone(numerators, denominators, maxima):
    outputs = numerators / denominators.clamp(min=1)[..., None]
    best = maxima.argmax(0)
    return outputs[best, torch.arange(len(best), device=best.device)]


@alternative
def by_logsumexp(numerators, denominators, maxima):
    logs = maxima + denominators.log()
    weights = logs.softmax(0).nan_to_num()
    outputs = (numerators / denominators[..., None]).nan_to_num()
    return torch.einsum("rn,rnd->nd", weights, outputs)


@alternative
def one_rank_after_the_other(numerators, denominators, maxima):
    top, bottom, highest = numerators[0].clone(), denominators[0].clone(), maxima[0].clone()
    for numerator, denominator, maximum in zip(
        numerators[1:], denominators[1:], maxima[1:], strict=True
    ):
        higher = torch.maximum(highest, maximum)
        shift = torch.where(higher == -math.inf, torch.zeros_like(higher), higher)
        old, new = (highest - shift).exp(), (maximum - shift).exp()
        top = old.unsqueeze(1) * top + new.unsqueeze(1) * numerator
        bottom = old * bottom + new * denominator
        highest = higher
    return torch.where(bottom.unsqueeze(1) > 0, top / bottom.unsqueeze(1), torch.zeros_like(top))

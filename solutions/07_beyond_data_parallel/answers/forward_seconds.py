"""Known mistakes of exercise forward_seconds, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "first_gather_free": (
        "The first gather counts as hidden, but no layer computes before it. Add it.",
        ('"ahead": gather + (n_layers - 1)', '"ahead": (n_layers - 1)'),
    ),
    "last_layer_free": (
        "The last layer does not compute here. Nothing hides its time: add it.",
        ("max(gather, compute) + compute", "max(gather, compute)"),
    ),
    "one_pair_too_many": (
        "n_layers pairs of gather and compute are counted. Between n layers there are n - 1.",
        ("(n_layers - 1) * max", "n_layers * max"),
    ),
    "no_ends": (
        "Only the longer of the two is counted. The first gather and the last layer have nothing that hides them.",
        (
            "gather + (n_layers - 1) * max(gather, compute) + compute",
            "n_layers * max(gather, compute)",
        ),
    ),
    "last_pair_too_many": (
        "While the last layer computes, nothing travels. Count n_layers - 1 times the longer of the two, then compute.",
        ("(n_layers - 1) * max(gather, compute) + compute", "n_layers * max(gather, compute)"),
    ),
    "the_shorter": (
        "The shorter of gather and compute is counted. The longer one decides.",
        ("max(gather, compute)", "min(gather, compute)"),
    ),
    "nothing_hidden": (
        "Ahead takes as long as waiting here. A gather travels while the layer before computes.",
        ("max(gather, compute)", "(gather + compute)"),
    ),
    "all_hidden": (
        "Only computing is counted between the ends. Where a gather takes longer, the layer waits for it.",
        ("max(gather, compute)", "compute"),
    ),
    "one_gather_when_waiting": (
        "Only one gather is counted for the way that waits. Every layer waits for its own.",
        ("n_layers * (gather + compute)", "gather + n_layers * compute"),
    ),
    "first_gather_as_long_as_computing": (
        "The first gather counts as at least as long as a layer computes. No layer computes meanwhile: add it alone.",
        ("gather + (n_layers - 1) * max", "n_layers * max"),
    ),
}


@alternative
def by_clock(n_layers, gather, compute):
    arrived = free = gather
    for _ in range(n_layers):
        start = max(arrived, free)
        arrived = start + gather
        free = start + compute
    return {"ahead": free, "waiting": (gather + compute) * n_layers}


@alternative
def without_max(n_layers, gather, compute):
    shorter = gather if gather < compute else compute
    waiting = n_layers * gather + n_layers * compute
    return {"waiting": waiting, "ahead": waiting - (n_layers - 1) * shorter}

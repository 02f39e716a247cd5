"""Mutants that no check can reject because they compute the same, each with the reason why."""

FREE = "the learner's own experiment: any bias, any rate and any number of steps show whether it moves"
EQUIVALENT = {
    "shows_frozen_bias: 1 => 2 in bias = torch.nn.Parameter(torch.zeros(1))": FREE,
    "shows_frozen_bias: 1.0 => 2.0 in optimizer = optimizer_class([bias], lr=1.0)": FREE,
    "shows_frozen_bias: 10 => 11 in for _ in range(10):": FREE,
}

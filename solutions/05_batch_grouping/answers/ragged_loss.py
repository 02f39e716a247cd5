"""Known mistakes of exercise ragged_loss, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "own_mean": (
        "That is the mean of this rank's losses: the ranks' average is a mean of means. Weigh a rank by its samples.",
        ("sum() * world_size / total", "mean()"),
    ),
    "own_mean_or_zero": (
        "That is the mean of this rank's losses: the ranks' average is a mean of means. Weigh a rank by its samples.",
        (" * world_size / total", " / max(1, len(losses))"),
    ),
    "own_mean_times_the_ranks": (
        "The mean of this rank's losses says nothing of how many they are. Weigh a rank by its share of the samples.",
        ("sum() * world_size / total", "mean() * world_size"),
    ),
    "own_mean_divided": (
        "The own mean is divided by world_size, which DDP does already. Weigh a rank by its share of the samples.",
        ("sum() * world_size / total", "mean() / world_size"),
    ),
    "nan_without_samples": (
        "The mean of no losses is nan, and one rank's nan spoils the gradient of all. Use the sum.",
        ("sum()", "mean() * len(losses)"),
    ),
    "without_the_ranks": (
        "DDP divides by the number of ranks once more, so the gradient is world_size times too small. Multiply by it.",
        (" * world_size", ""),
    ),
    "share_without_the_ranks": (
        "DDP divides by the number of ranks once more, so the gradient is world_size times too small. Multiply by it.",
        ("sum() * world_size", "mean() * len(losses)"),
    ),
    "divided_twice": (
        "The loss is divided by world_size, which DDP does already. Multiply instead.",
        ("* world_size", "/ world_size"),
    ),
    "plain_sum": (
        "The losses are added up and not divided by the number of samples: the step grows with the batch.",
        (" / total", ""),
    ),
    "own_sum": (
        "That is the sum of this rank's losses. Divide by all samples of the step, and think of DDP.",
        (" * world_size / total", ""),
    ),
    "not_added_up": (
        "The losses are weighted, but there is still one per sample. Add them up.",
        (".sum()", ""),
    ),
    "python_number": (
        "`.item()` and `float()` give a number that has no backward. Keep the tensor.",
        ("sum()", "sum().item()"),
    ),
    "zero_without_graph": (
        "A new 0 is not part of the graph, so backward fails on this rank and the others wait. Return the sum of no "
        "losses: it is 0, too.",
        ("    return", "    if not len(losses):\n        return torch.tensor(0.0, device=losses.device)\n    return"),
    ),
}


@alternative
def share_of_the_mean(losses, total, world_size):
    return losses.div(total).sum() * float(world_size)


@alternative
def weighted_mean(losses, total, world_size):
    return losses.sum() if not len(losses) else losses.mean() * (len(losses) * world_size / total)

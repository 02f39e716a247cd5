"""Known mistakes of exercise ragged_loss, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake

MEAN_OF_MEANS = (
    "That is the mean of this rank's own losses: the ranks' average is then a mean of means. Weigh a rank by its share "
    "of the samples."
)


@mistake("ragged_loss", MEAN_OF_MEANS)
def own_mean(losses, total, world_size):
    return losses.mean()


@mistake("ragged_loss", MEAN_OF_MEANS)
def own_mean_or_zero(losses, total, world_size):
    return losses.sum() / max(1, len(losses))


@mistake(
    "ragged_loss",
    "The mean of this rank's own losses says nothing of how many they are. Weigh a rank by its share of the samples.",
)
def own_mean_times_the_ranks(losses, total, world_size):
    return losses.mean() * world_size


@mistake(
    "ragged_loss",
    "The mean of this rank's own losses is divided by world_size, which DDP does already. Weigh a rank by its share "
    "of the samples.",
)
def own_mean_divided(losses, total, world_size):
    return losses.mean() / world_size


@mistake("ragged_loss", "The mean of no losses is nan, and one rank's nan spoils the gradient of all. Use the sum.")
def nan_without_samples(losses, total, world_size):
    return losses.mean() * len(losses) * world_size / total


@mistake(
    "ragged_loss",
    "DDP divides by the number of ranks once more, so the gradient is world_size times too small. Multiply by it.",
)
def without_the_ranks(losses, total, world_size):
    return losses.sum() / total


@mistake(
    "ragged_loss",
    "DDP divides by the number of ranks once more, so the gradient is world_size times too small. Multiply by it.",
)
def share_without_the_ranks(losses, total, world_size):
    return losses.mean() * len(losses) / total


@mistake("ragged_loss", "The loss is divided by world_size, which DDP does already. Multiply instead.")
def divided_twice(losses, total, world_size):
    return losses.sum() / total / world_size


@mistake(
    "ragged_loss",
    "The losses are added up and not divided by the number of samples: the step grows with the batch.",
)
def plain_sum(losses, total, world_size):
    return losses.sum() * world_size


@mistake("ragged_loss", "That is the sum of this rank's losses. Divide by all samples of the step, and think of DDP.")
def own_sum(losses, total, world_size):
    return losses.sum()


@mistake("ragged_loss", "The losses are weighted, but there is still one per sample. Add them up.")
def not_added_up(losses, total, world_size):
    return losses * world_size / total


@mistake(
    "ragged_loss",
    "`.item()` and `float()` give a number that has no backward. Keep the tensor.",
)
def python_number(losses, total, world_size):
    return losses.sum().item() * world_size / total


@mistake(
    "ragged_loss",
    "A new tensor of 0 is no part of the graph: backward fails on a rank without samples, and the others wait. "
    "The sum of no losses is 0, too.",
)
def zero_without_graph(losses, total, world_size):
    if len(losses) == 0:
        return torch.tensor(0.0, device=losses.device)
    return losses.sum() * world_size / total


@alternative("ragged_loss")
def share_of_the_mean(losses, total, world_size):
    return losses.div(total).sum() * float(world_size)


@alternative("ragged_loss")
def weighted_mean(losses, total, world_size):
    return losses.sum() if not len(losses) else losses.mean() * (len(losses) * world_size / total)

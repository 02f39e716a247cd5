"""Known mistakes of exercise ragged_loss, and right answers in other styles."""

from course.checks.engine import alternative, mistake


@mistake("ragged_loss", "That is the mean of this rank's own losses: the ranks' average is then a mean of means.")
def own_mean(losses, total, world_size):
    return losses.sum() / max(1, len(losses))


@mistake(
    "ragged_loss",
    "DDP divides by the number of ranks once more, so the gradient is world_size times too small. Multiply by it.",
)
def without_the_ranks(losses, total, world_size):
    return losses.sum() / total


@mistake("ragged_loss", "The loss is divided by world_size, which DDP does already. Multiply instead.")
def divided_twice(losses, total, world_size):
    return losses.sum() / total / world_size


@mistake(
    "ragged_loss",
    "The losses are added up and not divided by the number of samples: the step grows with the batch.",
)
def plain_sum(losses, total, world_size):
    return losses.sum() * world_size


@alternative("ragged_loss")
def share_of_the_mean(losses, total, world_size):
    return losses.div(total).sum() * float(world_size)


@alternative("ragged_loss")
def weighted_mean(losses, total, world_size):
    return losses.sum() if not len(losses) else losses.mean() * (len(losses) * world_size / total)

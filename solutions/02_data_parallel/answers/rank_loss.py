"""Known mistakes of exercise rank_loss, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative
from course.training.ragged_transformer import padded_losses

MISTAKES = {
    "mean_of_means": (
        "This is the mean over the tokens of this rank. A rank with few tokens then counts as much as one with many. "
        "Divide the sum by the tokens of the whole batch, times world_size.",
        ("losses, _ =", "losses, is_predicted ="),
        ("losses.sum() * world_size / n_tokens", "losses.sum() / is_predicted.sum()"),
    ),
    "mean_with_padding": (
        "`losses.mean()` counts the padding, where nothing is predicted. Take the sum, and divide by the tokens that "
        "all ranks predict.",
        ("losses, _ =", "losses, is_predicted ="),
        (
            "losses.sum() * world_size / n_tokens",
            "losses.mean() * world_size * is_predicted.sum() / n_tokens",
        ),
    ),
    "count_by_message": (
        "No message is needed, and no process group is there: every rank has the whole batch. Count its tokens.",
        ("losses, _ =", "losses, is_predicted ="),
        (
            "n_tokens = sum(len(tokens) - 1 for tokens in batch)",
            "n_tokens = is_predicted.sum()\n    dist.all_reduce(n_tokens)",
        ),
    ),
    "no_world_size": (
        "DDP divides the sum of the gradients by world_size, so this gradient is world_size times too short. Multiply "
        "the loss by world_size.",
        (" * world_size / n_tokens", " / n_tokens"),
    ),
    "mean_over_texts": (
        "Every text weighs the same here, however long it is. Divide by the tokens that are predicted, not by the "
        "number of texts.",
        ("sum(len(tokens) - 1 for tokens in batch)", "len(batch)"),
    ),
    "whole_batch": (
        "Every rank computes the whole batch, so N ranks do the work of one. Take the texts of this rank.",
        ("batch[rank::world_size]", "batch"),
        (" * world_size / n_tokens", " / n_tokens"),
    ),
    "counts_all_tokens": (
        "The divisor counts the first token of each text, which is not predicted. Add up len(tokens) - 1.",
        ("len(tokens) - 1 for", "len(tokens) for"),
    ),
    "drops_the_rest": (
        "Some texts are on no rank if the batch cannot be shared evenly. Take every world_size-th text, from place "
        "`rank` on.",
        (
            "batch[rank::world_size]",
            "batch[: len(batch) // world_size * world_size][rank::world_size]",
        ),
    ),
}


@alternative
def weighted_mean_of_the_rank(model, batch, rank, world_size):
    mine = [tokens for i, tokens in enumerate(batch) if i % world_size == rank]
    losses, is_predicted = padded_losses(model, mine)
    mean = losses[is_predicted].mean()
    total = torch.tensor([len(tokens) for tokens in batch]).sum().item() - len(batch)
    return mean * (int(is_predicted.sum()) * world_size / total)


@alternative
def dealt_from_the_end(model, batch, rank, world_size):
    reverse = batch[::-1]
    mine = reverse[world_size - 1 - rank :: world_size]
    losses = padded_losses(model, mine)[0].flatten().sum()
    return losses / (sum(map(len, batch)) - len(batch)) * world_size

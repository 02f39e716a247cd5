"""Known mistakes of exercise rank_seeds, and right answers in other styles."""

import hashlib

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "one_seed_for_parts": (
        "All ranks draw the same parts, so only 1/N of the hidden units differ. Give each tensor rank its own seed.",
        ('"split parameters": seed + tensor_rank', '"split parameters": seed'),
    ),
    "parts_by_data_rank": (
        "Ranks with other batches draw different weights for the same part. Its seed depends on tensor_rank alone.",
        (
            '"split parameters": seed + tensor_rank',
            '"split parameters": seed + data_rank * tensor_size + tensor_rank',
        ),
    ),
    "whole_by_tensor_rank": (
        "Whole parameters would be drawn differently on tensor ranks. Give them one seed on all ranks.",
        ('"whole parameters": seed,', '"whole parameters": seed + tensor_rank,'),
    ),
    "whole_by_data_rank": (
        "Ranks with other batches draw different whole weights. Whole parameters are equal on all ranks.",
        ('"whole parameters": seed,', '"whole parameters": seed + data_rank,'),
    ),
    "whole_dropout_differs": (
        "Tensor ranks drop different numbers of an activation that all hold. Its seed depends on data_rank alone.",
        (
            '"whole dropout": seed + data_rank',
            '"whole dropout": seed + data_rank * tensor_size + tensor_rank',
        ),
    ),
    "whole_dropout_repeats": (
        "Each batch loses the same numbers of a whole activation. Its seed depends on data_rank.",
        ('"whole dropout": seed + data_rank', '"whole dropout": seed'),
    ),
    "split_dropout_repeats_over_batches": (
        "Each batch loses the same numbers inside the split part. Its seed depends on data_rank, too.",
        ("seed + data_rank * tensor_size + tensor_rank", "seed + tensor_rank"),
    ),
    "split_dropout_repeats_over_parts": (
        "All tensor ranks lose the same numbers of their parts. The seed depends on tensor_rank, too.",
        ("seed + data_rank * tensor_size + tensor_rank", "seed + data_rank"),
    ),
    "ranks_added": (
        "data_rank + tensor_rank is the same for two ranks, so they drop the same numbers. Number the ranks.",
        ("data_rank * tensor_size + tensor_rank", "data_rank + tensor_rank"),
    ),
    "seed_times_rank": (
        "The run's seed is multiplied by the number of a rank, so with seed 0 all ranks draw the same. Add both.",
        ("seed + tensor_rank", "seed * (tensor_rank + 1)"),
        ("seed + data_rank,", "seed * (data_rank + 1),"),
        (
            "seed + data_rank * tensor_size + tensor_rank",
            "seed * (data_rank * tensor_size + tensor_rank + 1)",
        ),
    ),
    "ten_per_batch": (
        "Each batch has 10 seeds, so with more tensor ranks two ranks drop the same numbers. Multiply by tensor_size.",
        ("data_rank * tensor_size + tensor_rank", "10 * data_rank + tensor_rank"),
    ),
    "hundred_per_batch": (
        "Each batch has 100 seeds, so with more tensor ranks two ranks drop the same numbers. Multiply by tensor_size.",
        ("data_rank * tensor_size + tensor_rank", "100 * data_rank + tensor_rank"),
    ),
    "eight_per_batch": (
        "Each batch has 8 seeds, so with more tensor ranks two ranks drop the same numbers. Multiply by tensor_size.",
        ("data_rank * tensor_size + tensor_rank", "8 * data_rank + tensor_rank"),
    ),
}


@mistake("The run's seed is not used, so every training draws the same numbers. Add it to each.")
def without_the_seed(seed, data_rank, tensor_rank, tensor_size):
    return {
        "whole parameters": 0,
        "split parameters": tensor_rank,
        "whole dropout": data_rank,
        "split dropout": data_rank * tensor_size + tensor_rank,
    }


@mistake(
    "The seeds are cut to a small range, so two trainings may draw the same numbers. Return them whole."
)
def cut_to_a_range(seed, data_rank, tensor_rank, tensor_size):
    return {
        "whole parameters": seed % 1000,
        "split parameters": (seed + tensor_rank) % 1000,
        "whole dropout": (seed + data_rank) % 1000,
        "split dropout": (seed + data_rank * tensor_size + tensor_rank) % 1000,
    }


@alternative
def far_apart(seed, data_rank, tensor_rank, tensor_size):
    return {
        "whole parameters": 2**20 * seed,
        "split parameters": 2**20 * seed + 1 + tensor_rank,
        "whole dropout": 2**20 * seed + 1_000 + data_rank,
        "split dropout": 2**20 * seed + 100_000 + 1_000 * data_rank + tensor_rank,
    }


@alternative
def by_hashing(seed, data_rank, tensor_rank, tensor_size):
    seen_by = {
        "whole parameters": (seed,),
        "split parameters": (seed, "t", tensor_rank),
        "whole dropout": (seed, "d", data_rank),
        "split dropout": (seed, "d", data_rank, "t", tensor_rank),
    }
    seeds = {}
    for purpose, parts in seen_by.items():
        seeds[purpose] = int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")
    return seeds

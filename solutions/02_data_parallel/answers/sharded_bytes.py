"""Known mistakes of exercise sharded_bytes, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "one_moment": (
        "Adam keeps two numbers per parameter, the moments. Count both.",
        ('"optimizer": 2 * ', '"optimizer": '),
    ),
    "copy_of_the_weights": (
        "A float32 copy of the weights is counted with the moments. That belongs to 16-bit weights; here count two "
        "numbers per parameter.",
        ('"optimizer": 2 * ', '"optimizer": 3 * '),
    ),
    "other_way_round": (
        "Stages 1 and 3 are mixed up. Shard the optimizer first, and the parameters last.",
        ("2 * (shard if stage >= 1", "2 * (shard if stage >= 3"),
        ('"parameters": shard if stage >= 3', '"parameters": shard if stage >= 1'),
    ),
    "numbers": (
        "You count numbers, not bytes. A float32 number has 4 bytes.",
        ("4 * n_parameters", "n_parameters"),
    ),
    "gathered_once": (
        "Stage 3 gathers the weights twice, before forward and before backward. Count both times.",
        ("3 if stage == 3 else 2", "2"),
    ),
    "whole_halves": (
        "Each half sends the whole tensor here. Of its N pieces a rank sends N - 1.",
        ("(whole - shard)", "whole"),
    ),
    "all_at_once": (
        "Every stage shards everything here. Stage 1 shards the optimizer alone, 2 gradients too.",
        ("stage >= 3", "stage >= 1"),
        ("stage >= 2", "stage >= 1"),
    ),
    "half_an_all_reduce": (
        "DDP's all-reduce is counted as one half. It has two, a reduce-scatter and an all-gather.",
        ("3 if stage == 3 else 2", "(1, 2, 2, 3)[stage]"),
    ),
}


@alternative
def a_table(n_parameters, world_size, stage):
    whole, shard = 4 * n_parameters, 4 * n_parameters / world_size
    parameters, gradients, moments = (
        (whole,) * 3,
        (whole, whole, shard),
        (whole, shard, shard),
        (shard,) * 3,
    )[stage]
    sent = (whole - shard) * (2, 2, 2, 3)[stage]
    return dict(parameters=parameters, gradients=gradients, optimizer=2 * moments, sent=sent)


@alternative
def one_condition_each(n_parameters, world_size, stage):
    bytes_of = {
        "parameters": 4.0 * n_parameters,
        "gradients": 4.0 * n_parameters,
        "optimizer": 8.0 * n_parameters,
    }
    for begins, name in enumerate(["optimizer", "gradients", "parameters"], 1):
        if stage >= begins:
            bytes_of[name] /= world_size
    phases = 2 + (stage > 2)
    return bytes_of | {"sent": phases * 4.0 * n_parameters * (1 - 1 / world_size)}

"""Known mistakes of exercise state_bytes, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "no_copy": (
        "The float32 copy of the weights is missing. With 16-bit weights the optimizer has 4 + 8 bytes per parameter.",
        ("(2, 2, 12)", "(2, 2, 8)"),
    ),
    "one_moment": (
        "Adam keeps two moments per parameter, 4 bytes each. Count both.",
        ("(2, 2, 12)", "(2, 2, 8)"),
        ("(4, 4, 8)", "(4, 4, 4)"),
    ),
    "copy_of_float32": (
        "With float32 weights the optimizer needs no copy of them. It keeps two moments, 8 bytes per parameter.",
        ("(4, 4, 8)", "(4, 4, 12)"),
    ),
    "gradients_in_float32": (
        "The gradients are counted in float32. Here they have 16 bits, as the weights do.",
        ("(2, 2, 12)", "(2, 4, 12)"),
    ),
    "other_way_round": (
        "Stages 1 and 3 are mixed up: the optimizer is sharded first, the weights last.",
        ("weights * (shard if plan.stage >= 3", "weights * (shard if plan.stage >= 1"),
        ("optimizer * (shard if plan.stage >= 1", "optimizer * (shard if plan.stage >= 3"),
    ),
    "only_its_own": (
        "Each stage shards only one thing here. Stage 2 also shards what stage 1 does, and stage 3 all of it.",
        ("plan.stage >= 2", "plan.stage == 2"),
        ("plan.stage >= 1", "plan.stage == 1"),
    ),
    "all_from_stage_one": (
        "Every stage shards everything here. Stage 1 shards only the optimizer, stage 2 also the gradients.",
        ("plan.stage >= 3", "plan.stage >= 1"),
        ("plan.stage >= 2", "plan.stage >= 1"),
    ),
    "pipeline_forgotten": (
        "The pipeline ranks are not counted. Each keeps only some of the layers: divide by their number, too.",
        ("(plan.tensor * plan.pipeline)", "plan.tensor"),
    ),
    "tensor_forgotten": (
        "The tensor ranks are not counted. Each keeps a part of every layer: divide by their number, too.",
        ("(plan.tensor * plan.pipeline)", "plan.pipeline"),
    ),
    "whole_numbers": (
        "The shares are rounded down, so the bytes of all devices do not add up to those of the model. Divide with /.",
        (
            "parameters / (plan.tensor * plan.pipeline)",
            "parameters // (plan.tensor * plan.pipeline)",
        ),
        ("here / plan.data", "here // plan.data"),
    ),
    "by_all_devices": (
        "A shard is cut among all devices. The tensor and pipeline ranks have cut already: divide by the data ranks.",
        ("shard = here / plan.data", "shard = here / plan.data / plan.tensor"),
    ),
    "by_the_whole_world": (
        "A shard is cut among all devices, though tensor and pipeline ranks have cut already. Divide by the data "
        "ranks alone.",
        ("shard = here / plan.data", "shard = here / (plan.data * plan.tensor * plan.pipeline)"),
    ),
}


@alternative
def a_table(parameters, plan, mixed=True):
    whole = parameters / plan.tensor / plan.pipeline
    cut = whole / plan.data
    kept = ((whole,) * 3, (whole, whole, cut), (whole, cut, cut), (cut,) * 3)[plan.stage]
    sizes = (2, 2, 12) if mixed else (4, 4, 8)
    return {
        name: n * size
        for name, n, size in zip(("weights", "gradients", "optimizer"), kept, sizes, strict=True)
    }


@alternative
def one_condition_each(parameters, plan, mixed=True):
    size = 2.0 if mixed else 4.0
    numbers = parameters / (plan.tensor * plan.pipeline)
    found = dict(
        weights=size * numbers,
        gradients=size * numbers,
        optimizer=(12.0 if mixed else 8.0) * numbers,
    )
    for stage, name in enumerate(["optimizer", "gradients", "weights"], 1):
        if plan.stage >= stage:
            found[name] /= plan.data
    return found

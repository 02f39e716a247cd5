"""Known mistakes of exercise sharded_bytes, and right answers in other styles."""

from course.checks.engine import alternative, mistake


def of_rank(n_parameters, world_size, stage, first=(3, 2, 1), states=2, size=4, third=3, others=1):
    """Right bytes, with one idea to get wrong each."""
    whole = size * n_parameters
    shares = [1 / world_size if stage >= begins else 1 for begins in first]
    passes = third if stage == 3 else 2
    return {
        "parameters": whole * shares[0],
        "gradients": whole * shares[1],
        "optimizer": states * whole * shares[2],
        "sent": passes * whole * (world_size - others) / world_size,
    }


@mistake("sharded_bytes", "Adam keeps two numbers per parameter, the moments. Count both.")
def one_moment(n_parameters, world_size, stage):
    return of_rank(n_parameters, world_size, stage, states=1)


@mistake("sharded_bytes", "Stages 1 and 3 are mixed up: the optimizer is sharded first, the parameters last.")
def other_way_round(n_parameters, world_size, stage):
    return of_rank(n_parameters, world_size, stage, first=(1, 2, 3))


@mistake("sharded_bytes", "Those are numbers. A float32 number has 4 bytes.")
def numbers(n_parameters, world_size, stage):
    return of_rank(n_parameters, world_size, stage, size=1)


@mistake("sharded_bytes", "Stage 3 gathers the weights twice, before forward and before backward. Count both times.")
def gathered_once(n_parameters, world_size, stage):
    return of_rank(n_parameters, world_size, stage, third=2)


@mistake("sharded_bytes", "Each half sends the whole tensor here. Of its N pieces a rank sends N - 1.")
def whole_halves(n_parameters, world_size, stage):
    return of_rank(n_parameters, world_size, stage, others=0)


@mistake("sharded_bytes", "Every stage shards everything here. Stage 1 shards the optimizer alone, 2 gradients too.")
def all_at_once(n_parameters, world_size, stage):
    return of_rank(n_parameters, world_size, stage, first=(1, 1, 1))


@alternative("sharded_bytes")
def a_table(n_parameters, world_size, stage):
    whole, shard = 4 * n_parameters, 4 * n_parameters / world_size
    parameters, gradients, moments = ((whole,) * 3, (whole, whole, shard), (whole, shard, shard), (shard,) * 3)[stage]
    sent = (whole - shard) * (2, 2, 2, 3)[stage]
    return dict(parameters=parameters, gradients=gradients, optimizer=2 * moments, sent=sent)


@alternative("sharded_bytes")
def one_condition_each(n_parameters, world_size, stage):
    bytes_of = {"parameters": 4.0 * n_parameters, "gradients": 4.0 * n_parameters, "optimizer": 8.0 * n_parameters}
    for begins, name in enumerate(["optimizer", "gradients", "parameters"], 1):
        if stage >= begins:
            bytes_of[name] /= world_size
    phases = 2 + (stage > 2)
    return bytes_of | {"sent": phases * 4.0 * n_parameters * (1 - 1 / world_size)}

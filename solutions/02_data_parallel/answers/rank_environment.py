"""Known mistakes of exercise rank_environment, and right answers in other styles."""

from course.checks.engine import alternative, mistake


def environment(node, local_rank, nodes, per_node, address, port, **other):
    """The right variables, some of them replaced."""
    right = {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "WORLD_SIZE": nodes * per_node,
        "RANK": node * per_node + local_rank,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": per_node,
        "GROUP_RANK": node,
    }
    return {name: str(value) for name, value in (right | other).items()}


@mistake(
    "rank_environment",
    "MASTER_ADDR and MASTER_PORT are missing: nobody knows where to meet. WORLD_SIZE alone does not say it.",
)
def nowhere_to_meet(*args):
    return {name: value for name, value in environment(*args).items() if not name.startswith("MASTER")}


@mistake("rank_environment", "Numbers are given as int, and an environment holds only strings. Put str() around them.")
def numbers(*args):
    return {name: int(value) if value.isdecimal() else value for name, value in environment(*args).items()}


@mistake(
    "rank_environment",
    "RANK is counted on each node anew, so there are several ranks 0. Add the processes of the nodes before.",
)
def rank_of_the_node(node, local_rank, *rest):
    return environment(node, local_rank, *rest, RANK=local_rank)


@mistake(
    "rank_environment",
    "Ranks are dealt to the nodes in turn. The first per_node ranks are those of node 0: node * per_node + local_rank.",
)
def ranks_in_turn(node, local_rank, nodes, *rest):
    return environment(node, local_rank, nodes, *rest, RANK=local_rank * nodes + node)


@mistake(
    "rank_environment",
    "WORLD_SIZE is the number of machines. It is that of all processes: nodes * per_node.",
)
def world_of_machines(node, local_rank, nodes, *rest):
    return environment(node, local_rank, nodes, *rest, WORLD_SIZE=nodes)


@mistake(
    "rank_environment",
    "LOCAL_WORLD_SIZE is the number of all processes. It is that of one machine: per_node.",
)
def whole_world_on_a_node(node, local_rank, nodes, per_node, *rest):
    return environment(node, local_rank, nodes, per_node, *rest, LOCAL_WORLD_SIZE=nodes * per_node)


@mistake("rank_environment", "GROUP_RANK is the rank of the process. It is the number of the machine: node.")
def group_of_one(node, local_rank, nodes, per_node, *rest):
    return environment(node, local_rank, nodes, per_node, *rest, GROUP_RANK=node * per_node + local_rank)


@mistake("rank_environment", "LOCAL_RANK is the rank among all processes. It counts on its own machine: local_rank.")
def local_rank_of_all(node, local_rank, nodes, per_node, *rest):
    return environment(node, local_rank, nodes, per_node, *rest, LOCAL_RANK=node * per_node + local_rank)


@alternative("rank_environment")
def written_out(node, local_rank, nodes, per_node, address, port):
    return dict(
        MASTER_ADDR=address,
        MASTER_PORT=f"{port}",
        WORLD_SIZE=f"{nodes * per_node}",
        RANK=f"{local_rank + per_node * node}",
        LOCAL_RANK=f"{local_rank}",
        LOCAL_WORLD_SIZE=f"{per_node}",
        GROUP_RANK=f"{node}",
    )


@alternative("rank_environment")
def counted_out(node, local_rank, nodes, per_node, address, port):
    everyone = [(n, p) for n in range(nodes) for p in range(per_node)]
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT".split()
    values = everyone.index((node, local_rank)), len(everyone), local_rank, per_node, node, address, port
    return {name: str(value) for name, value in zip(names, values, strict=True)}

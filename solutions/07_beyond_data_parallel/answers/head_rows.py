"""Known mistakes of exercise head_rows, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "cut_across_q_k_v": (
        "The 3 * dim rows are cut into N blocks, so a rank gets queries without their keys. Cut q, k and v each.",
        ("rows.chunk(world_size, dim=1)[rank].flatten()", "rows.flatten().chunk(world_size)[rank]"),
    ),
    "only_queries": (
        "Only the rows of the queries are kept. A head needs its keys and values, too.",
        ("dim=1)[rank].flatten()", "dim=1)[rank][0].flatten()"),
    ),
    "parts_of_every_head": (
        "Each rank gets some rows of every head. Give it whole heads: cut the dimension of heads.",
        ("dim=1", "dim=2"),
    ),
    "every_nth_head": (
        "The heads are dealt out one by one. Rank r keeps the r-th group of neighbouring heads.",
        ("rows.chunk(world_size, dim=1)[rank].flatten()", "rows[:, rank::world_size].flatten()"),
    ),
    "head_by_head": (
        "The rows are sorted by head. List the queries of all heads first, then the keys, then the values.",
        ("dim=1)[rank].flatten()", "dim=1)[rank].transpose(0, 1).flatten()"),
    ),
    "one_head": (
        "The rank gets one head only. It keeps n_heads / world_size of them.",
        ("rows.chunk(world_size, dim=1)[rank].flatten()", "rows[:, rank].flatten()"),
    ),
    "rows_of_one_third": (
        "Keys and values are counted from row 0 again. Keys begin at row dim, values at row 2 * dim.",
        (".flatten().tolist()", ".flatten().remainder(dim).tolist()"),
    ),
}


@alternative
def by_counting(dim, n_heads, rank, world_size):
    per_rank = dim // world_size
    kept = []
    for third in range(3):
        start = third * dim + rank * per_rank
        kept += range(start, start + per_rank)
    return kept


@alternative
def by_asking_each_row(dim, n_heads, rank, world_size):
    width, heads = dim // n_heads, n_heads // world_size
    return [row for row in range(3 * dim) if row % dim // width // heads == rank]

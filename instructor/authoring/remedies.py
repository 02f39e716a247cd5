"""The remedies of units 03 and 04, and the claims that show where each wins and where it loses.

A cell of the table is a claim's sentence, word for word, so its verdict and its number come from
the records; tests/test_remedies.py finds each sentence in a master. results.md has the table
(documents.py). To add a remedy, add a Remedy to REMEDIES.
"""

from dataclasses import dataclass

LARGE_BATCH = "03_large_batch"
FAST_LOADING = "04_fast_loading"


@dataclass(frozen=True)
class Remedy:
    """A remedy, and the sentences of claims that hold where it wins, and where it loses.

    A losing sentence says in words what the remedy costs, or does not do. Where a winning claim
    fails on a machine, the table shows it by its verdict.
    """

    name: str
    unit: str
    wins: tuple[str, ...] = ()
    loses: tuple[str, ...] = ()


REMEDIES = (
    # ---- 03: a larger batch, and what repairs it
    Remedy(
        "larger batch",
        LARGE_BATCH,
        wins=("16 times the batch trains more than twice the samples/s",),
        loses=(
            "16 times the batch with the same learning rate loses more than 0.1 of HR@10",
            "from 16× to 192×, 12 times the batch, throughput grows by less than 4 times",
        ),
    ),
    Remedy(
        "linear learning rate",
        LARGE_BATCH,
        wins=("the linear rule restores more than a third of the lost HR@10",),
        loses=(
            "at 192× with the linear rule, no seed ends above popularity, with a ramp or without",
        ),
    ),
    Remedy(
        "Adam",
        LARGE_BATCH,
        wins=(
            "at 192×, Adam without a ramp ends within 0.03 of the small batch's HR@10, with units "
            "alive",
        ),
    ),
    Remedy(
        "warm-up",
        LARGE_BATCH,
        loses=(
            "at 192× with the linear rule, the loss exceeds twice the untrained model's with every "
            "seed, with a ramp and without",
        ),
    ),
    Remedy(
        "LARS",
        LARGE_BATCH,
        wins=("LARS moves every tensor by the same share of its norm",),
        loses=("the best AdamW ends above LARS",),
    ),
    Remedy(
        "accumulation",
        LARGE_BATCH,
        wins=(
            "with micro-batches, a batch of 12 of them keeps at most a tenth more bytes than a "
            "batch of one",
        ),
    ),
    Remedy(
        "bf16",
        LARGE_BATCH,
        wins=(
            "the mean HR@10 in bf16 is within 0.03 of fp32",
            "bf16 makes an update of NVIDIA's NeuMF at least 10 % faster than fp32",
        ),
    ),
    # ---- 04: orders, formats, steps
    Remedy(
        "windows of pages",
        FAST_LOADING,
        wins=(
            "from a cold file, windows of B pages are at least three times as fast as a random "
            "order",
        ),
        loses=(
            "with shuffled shards and equal memory, windows have at least 1.5 times the excess "
            "variance of a buffer",
        ),
    ),
    Remedy(
        "shuffle buffer",
        FAST_LOADING,
        wins=(
            "with shuffled shards and equal memory, windows have at least 1.5 times the excess "
            "variance of a buffer",
        ),
        loses=(
            "in file order, a buffer with an eighth of a sorted file leaves at least half of the "
            "variance of no shuffle",
        ),
    ),
    Remedy(
        "mapped file",
        FAST_LOADING,
        wins=(
            "gathering a random batch of tokens in one call is at least twice as fast as sample by "
            "sample",
        ),
        loses=(
            "with room for a quarter of a mapped file, random samples read it at least twice per "
            "epoch, windows of shards less than 1.5 times",
        ),
    ),
    Remedy(
        "folder of JPEGs",
        FAST_LOADING,
        loses=(
            "a batch from a folder of JPEGs takes at least 20 times as long as a copy of its "
            "pixels",
        ),
    ),
)

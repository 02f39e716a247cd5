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
        wins=(
            "16 times the batch trains more than twice the samples/s",
            "with a learning rate tuned for Adam, 16 times the batch loses less than 0.03 of HR@10",
        ),
        loses=(
            "16 times the batch with the same learning rate loses more than 0.1 of HR@10",
            "from 16× to 192×, 12 times the batch, throughput grows by less than 4 times",
            "192 times the batch takes at least 10 % longer to the target than 16 times the batch",
        ),
    ),
    Remedy(
        "linear learning rate",
        LARGE_BATCH,
        wins=(
            "the linear rule restores more than a third of the lost HR@10",
            "at 16×, the linear rule ends at a higher HR@10 than the square root",
        ),
        loses=(
            "at 192×, the best learning rate of the sweep leaves SGD at least 0.1 of HR@10 "
            "below the small batch",
        ),
    ),
    Remedy(
        "Adam",
        LARGE_BATCH,
        wins=(
            "with a learning rate tuned for Adam, 16 times the batch loses less than 0.03 of HR@10",
            "at 192×, each at the best learning rate of its sweeps, Adam beats SGD by more than "
            "0.1 of HR@10",
        ),
        loses=(
            "without a ramp, the deep post-norm transformer ends less than 0.1 nats below "
            "token frequencies",
        ),
    ),
    Remedy(
        "warm-up",
        LARGE_BATCH,
        wins=(
            "with a ramp over half of the training, the deep post-norm transformer ends at least "
            "0.3 nats lower than without",
        ),
        loses=(
            "with a third of the layers, the ramp changes the loss by less than 0.2 nats",
            "with pre-norm blocks, the ramp changes the loss by less than 0.2 nats",
            "at 192 times the batch, a ramp gains SGD less than 10 points of HR@10, each at the "
            "best of three peaks",
            "at 192 times the batch, SGD with a ramp ends below popularity at the best of "
            "three peaks",
        ),
    ),
    Remedy(
        "LARS",
        LARGE_BATCH,
        wins=(
            "at 192 times the batch, LARS ends at least 20 points of HR@10 above SGD with the "
            "same schedule, each at the best of three peaks",
            "at 16 times the batch, LARS ends at least 5 points of HR@10 above SGD, each at "
            "the best of three peaks",
        ),
        loses=(
            "at the base batch, an update with LARS takes at least 10 % longer than one with SGD",
            "at 192 times the batch, Adam ends at least 2 points of HR@10 above LARS, each at "
            "the best of three",
        ),
    ),
    Remedy(
        "weight decay of 1e-4",
        LARGE_BATCH,
        loses=("under LARS at 192x, weight decay of 1e-4 costs at least 0.1 of HR@10",),
    ),
    Remedy(
        "loss scaling",
        LARGE_BATCH,
        wins=(
            "with gradients as small as at batch 2^20, fp16 without a loss scale is no better "
            "than a constant: its loss is 0.49 or more",
            "with a loss scaler the same training in fp16 ends within 0.01 of the loss of fp32",
        ),
        loses=(
            "in bf16 without a loss scale the same training ends within 0.01 of the loss of fp32",
            "without a loss scale, less than 5 % of the gradients is lost here",
        ),
    ),
    Remedy(
        "bf16",
        LARGE_BATCH,
        wins=(
            "autocast to bf16 keeps at most three quarters of the bytes that fp32 keeps for "
            "backward",
            "bf16 makes an update of NVIDIA's NeuMF at least 10 % faster than fp32",
            "without weight decay, mixed precision changes the HR@10 of LARS by less than 0.05",
        ),
    ),
    Remedy(
        "accumulation",
        LARGE_BATCH,
        wins=(
            "with micro-batches, a batch of 12 of them keeps at most a tenth more bytes than "
            "a batch of one",
        ),
        loses=("an update in 12 pieces takes at most 10 % longer than the whole batch",),
    ),
    Remedy(
        "a growing batch",
        LARGE_BATCH,
        wins=(
            "the growing batch makes at most two thirds of the updates of the falling "
            "learning rate",
        ),
        loses=("a growing batch ends within 0.02 of the HR@10 of a falling learning rate",),
    ),
    # ---- 04: orders, formats, steps
    Remedy(
        "one call per batch",
        FAST_LOADING,
        wins=(
            "batched indexing is at least twice as fast as fetching rows one by one",
            "an epoch of gathers is at least five times as fast as TensorDataset's",
        ),
    ),
    Remedy(
        "a buffer of one's own",
        FAST_LOADING,
        wins=(
            "gathering a large batch into a buffer is at least twice as fast as table[index]",
            "for large batches, a buffer makes index_select at least 1.5 times as fast as a "
            "new tensor",
        ),
        loses=(
            "for small batches, a buffer makes index_select at most 10 % faster or slower "
            "than a new tensor",
        ),
    ),
    Remedy(
        "workers for a tensor in memory",
        FAST_LOADING,
        loses=(
            "two workers make an epoch of TensorDataset less than 1.5 times as fast",
            "two workers that do not share the shards deliver every sample twice",
        ),
    ),
    Remedy(
        "windows of pages",
        FAST_LOADING,
        wins=(
            "from a cold file, windows of B pages are at least three times as fast as a "
            "random order",
            "per epoch, a random order reads at least ten times the bytes of the file from "
            "the disk, windows of B pages less than three times",
            "windows of B pages leave less than 2.5 times the excess loss of a random order",
        ),
        loses=(
            "with shuffled shards and equal memory, windows have at least 1.5 times the "
            "excess variance of a buffer",
        ),
    ),
    Remedy(
        "shuffle buffer",
        FAST_LOADING,
        wins=(
            "with shuffled shards and equal memory, windows have at least 1.5 times the "
            "excess variance of a buffer",
        ),
        loses=(
            "in file order, a buffer with an eighth of a sorted file leaves at least half of "
            "the variance of no shuffle",
        ),
    ),
    Remedy(
        "mapped file",
        FAST_LOADING,
        wins=(
            "gathering a random batch of tokens in one call is at least twice as fast as "
            "sample by sample",
        ),
        loses=(
            "without room, random rows from a mapping read more than twice the file per epoch",
            "with room for a quarter of a mapped file, random samples read it at least twice "
            "per epoch, windows of shards less than 1.5 times",
        ),
    ),
    Remedy(
        "reading ahead",
        FAST_LOADING,
        wins=(
            "on a cold file, where a step takes about as long as a fill, reading ahead is at "
            "least 1.2 times as fast",
        ),
        loses=(
            "where a step takes about as long as a fill, more than half of the predicted gain "
            "of reading ahead is found, so the formula is nearer than 'no gain'",
        ),
    ),
    Remedy(
        "steps in place",
        FAST_LOADING,
        wins=(
            "an epoch in place is at least 10 % faster than one with new tensors",
            "an epoch in place is at least 10 % faster than one that writes into two other buffers",
        ),
        loses=(
            "a step in place gains at least 10 % more if the C library returns freed memory "
            "than if it keeps it",
        ),
    ),
    Remedy(
        "torch.compile of the step",
        FAST_LOADING,
        wins=("torch.compile makes the guide's step at least 10 % faster",),
    ),
    Remedy(
        "two passes over a batch",
        FAST_LOADING,
        wins=(
            "the step in two passes moves a third of the bytes of the other two steps",
            "an epoch of six passes in place takes at least 1.1 times as long as one of two passes",
        ),
    ),
    Remedy(
        "conjugate gradients",
        FAST_LOADING,
        wins=(
            "with many rows and a tight target, SGD needs more passes than CG",
            "with few rows and a tight target, SVRG needs more passes than CG",
        ),
        loses=(
            "with many rows and a rough target, CG needs at least 1.5 times the passes of SGD",
            "with many rows and a tight target, CG needs at least 1.5 times the passes of SVRG",
        ),
    ),
    Remedy(
        "variance reduction (SVRG)",
        FAST_LOADING,
        wins=("with many rows and a tight target, CG needs at least 1.5 times the passes of SVRG",),
        loses=("with few rows and a tight target, SVRG needs more passes than CG",),
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

"""The advice of unit 06, a row each, and the claim that measures it: *the rows of the flip map*.

To add a row, add an Advice to ADVICE: the sentence of a claim that a part makes, word for word, and
the map takes its numbers from the records. flip_map.py makes the cells, plots/flip_map.py draws
them, and `course build` writes docs/flip-map.md.

SEED is the checklist that this unit began with: L. Kuhn, "Faster Deep Learning Training with
PyTorch", 2021 (efficientdl.com). All its items are here. TODAY is what such lists name now.
"""

from dataclasses import dataclass

TIMES = "times as fast"  # no effect: 1
POINTS = "points of accuracy"  # no effect: 0
LOSS = "less loss"  # no effect: 0
COUNT = "an exact count"  # has no sign: the map shows it
SEED = "the checklist"
TODAY = "today's list"


@dataclass(frozen=True)
class Advice:
    """A piece of advice in one situation, and the claim whose number is its gain.

    `claim` is "" where no part measures it. With `is_opposite`, the claim's number is that of
    leaving the advice out: its inverse, or its negative, is the gain.
    """

    name: str
    promise: str  # what the list says
    why: str  # why it wins or loses, or where it may win
    claim: str = ""
    part: str = "06/1"  # where it is measured, or taught
    unit: str = TIMES
    is_opposite: bool = False
    source: str = SEED


ADVICE = (
    # ---- steps: fewer of them
    Advice(
        "one cycle, not cosine decay",
        "a massive speed-up (superconvergence)",
        "Both end near zero, so expect a small difference. A cycle has more numbers to tune.",
        "one cycle and cosine decay, each at its best of five peaks, differ by less than a point",
        "06/2",
        POINTS,
    ),
    Advice(
        "one cycle, not a constant rate for twice the steps",
        "the same accuracy in fewer steps",
        "A constant learning rate keeps the noise of its last batches. Longer trainings lose less.",
        "one cycle ends above a constant learning rate with twice the steps, in the mean of the "
        "seeds",
        "06/2",
        POINTS,
    ),
    Advice(
        "one cycle, until an easy target",
        "fewer images",
        "An easy target may be reached before the learning rate has fallen; then a cycle gains "
        "little. The race takes OneCycleLR's own shape.",
        "one cycle saves at least 10 % of the images",
        "06/4",
    ),
    Advice(
        "cyclic schedule, not cosine decay",
        "crosses saddle points faster",
        "It ends at a tenth of its peak, not near zero.",
        "cosine decay ends above the cyclic schedule, in the mean of the seeds",
        "06/2",
        POINTS,
        is_opposite=True,
    ),
    Advice(
        "AdamW, not Adam with L2, each at its best decay",
        "less error, less time",
        "Both decay weights; the same number means different strengths.",
        "each at its own best peak and decay, AdamW and Adam with L2 differ by less than three "
        "points",
        "06/2",
        POINTS,
    ),
    Advice(
        "AdamW with one cycle, not with a constant rate",
        "works well with one cycle",
        "Adam divides each step by the size of the gradient, so the end of a schedule may matter "
        "less than for SGD.",
        "for AdamW the better of two one-cycle peaks ends above the better of two constant "
        "learning rates",
        "06/2",
        POINTS,
    ),
    Advice(
        "gradient clipping, healthy batches",
        "a small thing that helps",
        "It is insurance: it pays when a broken batch comes.",
        "without a broken batch, clipping changes accuracy by less than two points",
        "06/2",
        POINTS,
    ),
    Advice(
        "input normalised, with BatchNorm",
        "normalise the input",
        "BatchNorm after the first convolution normalises for you.",
        "with BatchNorm, normalised input ends with less loss than raw pixels",
        unit=LOSS,
    ),
    Advice(
        "BatchNorm, input normalised",
        "normalise between layers",
        "It keeps the scale of each layer's input while the weights below it move.",
        "with normalised input, BatchNorm ends with less loss than no norm",
        unit=LOSS,
    ),
    # ---- batches
    Advice(
        "the largest batch that fits",
        "uses the device better",
        "It saves time per image until the device is full, and makes fewer updates.",
        "the largest batch that fits takes longer to the target than the base batch",
        "06/2",
        is_opposite=True,
    ),
    Advice(
        "learning rate scaled with the batch",
        "double the rate with the batch",
        "A large batch makes fewer steps, so each has to go further. Too large a learning rate "
        "diverges or slows down.",
        "with the learning rate unscaled, the largest batch needs more steps, or never arrives",
        "06/2",
    ),
    Advice(
        "gradient accumulation",
        "a larger batch in the same memory",
        "It saves bytes, not time: the same work in more calls.",
        "without BatchNorm the accumulated gradient equals the gradient of the whole batch",
        "06/4",
        COUNT,
    ),
    Advice(
        "activation checkpointing",
        "slightly slower, much less memory",
        "It runs each forward pass twice. It wins where the bytes buy a larger batch.",
        "a checkpointed step takes longer than the 4/3 of the rule",
        "06/4",
        is_opposite=True,
    ),
    # ---- data
    Advice(
        "2 workers, tensors in memory",
        "num_workers above 0",
        "Workers take cores from a CPU that trains, and send batches that were there.",
        "workers make a training with tensors in memory faster",
    ),
    Advice(
        "2 workers, images made one by one",
        "num_workers above 0",
        "They save what the profile calls data, if there are cores that do not train.",
        "two workers make a training faster whose images are made one by one",
    ),
    Advice(
        "4 workers per device, not 2",
        "four times the number of GPUs; more and fewer are slower",
        "The best number is about the time to make a batch over the time of a step, up to your "
        "cores. A GPU count says nothing about either.",
        "four workers, the rule for one device, are faster than two",
    ),
    Advice(
        "pin_memory",
        "faster copies to the GPU",
        "It saves a part of the transfer, and there is none on a CPU.",
        "pin_memory makes a training with tensors in memory faster",
    ),
    Advice(
        "pin_memory and non_blocking",
        "copies next to computing",
        "It hides the transfer where the next line does not ask for a number.",
        "pin_memory with non_blocking makes a training with tensors in memory faster",
    ),
    Advice(
        "as_tensor, not tensor: a network",
        "no copy",
        "The copy is a small share of this step.",
        "as_tensor instead of tensor makes a step of the network faster",
    ),
    Advice(
        "as_tensor, not tensor: a linear model",
        "no copy",
        "A linear model reads each number once or twice, so a copy is a large share.",
        "as_tensor instead of tensor makes a step of a linear model faster",
    ),
    Advice(
        "device= when a tensor is made",
        "no transfer",
        "It saves a copy per tensor where the device is not the CPU.",
        "tensors made on the device come faster than tensors moved there",
    ),
    # ---- cheaper steps
    Advice(
        "16 bits, many images",
        "2 to 5.5 times as fast, on GPUs only",
        "It needs units that multiply 16 bits, and work that fills them. CPUs with AMX or "
        "AVX-512 BF16 have them.",
        "a step in 16 bits is faster with many images",
        "06/3",
    ),
    Advice(
        "bfloat16, in the race",
        "2 to 5.5 times as fast",
        "It needs units that multiply 16 bits, as in the row above.",
        "bfloat16 makes an image at least 10 % faster",
        "06/4",
    ),
    Advice(
        "cudnn.benchmark",
        "the fastest convolution for fixed shapes",
        "It wins where the shapes stay; the first step of each shape pays.",
        "cudnn.benchmark makes a step faster",
    ),
    Advice(
        "cudnn.benchmark, first step of a shape",
        "may become very slow at a large batch",
        "It tries several algorithms. Shapes that change pay each time.",
        "with cudnn.benchmark, the first step of a batch size takes at most twice as long as the "
        "next",
    ),
    Advice(
        "no .item() in the steps",
        "no .item(), .cpu(), .numpy() between steps",
        "A CPU has no queue to wait for. On a GPU, look for gaps in the trace.",
        "a step without .item() is faster",
    ),
    Advice(
        "values asked for once, at the end",
        "use .detach()",
        "detach() only leaves the graph. A line waits if it needs the number.",
        "logging each step waits several times in each step, logging once waits once",
        unit=COUNT,
    ),
    Advice(
        "gradients None, not 0: a network",
        "a modest speed-up",
        "It is the default since PyTorch 2.0, so you have it already.",
        "gradients None instead of 0 make a step of the network faster",
    ),
    Advice(
        "gradients None, not 0: few rows",
        "a modest speed-up",
        "With few rows, writing the gradient is a large part of the backward pass.",
        "gradients None instead of 0 make a backward pass of few rows faster",
    ),
    Advice(
        "point-wise operations fused",
        "one kernel, fewer reads and writes",
        "A fused kernel reads and writes the tensor once. torch.compile replaces torch.jit.script.",
        "torch.compile makes the chain of operations of GELU at least 50 % faster",
        "06/3",
    ),
    Advice(
        "no bias before BatchNorm, in the race",
        "saves an operation",
        "BatchNorm subtracts it. Adding it and its gradient are a small part of a convolution.",
        "the bias before BatchNorm changes the time per image by less than 5 %",
        "06/4",
    ),
    Advice(
        "no_grad in validation: time",
        "turn gradients off",
        "The graph costs little time to record.",
        "no_grad makes a validation faster",
    ),
    Advice(
        "no_grad in validation: bytes kept",
        "turn gradients off",
        "With a graph, activations of a batch stay until its result is dropped.",
        "no_grad keeps no activation of a validation batch",
        unit=COUNT,
    ),
    Advice(
        "debugging tools off",
        "turn them on only when needed",
        "Anomaly detection notes a traceback for each operation. Its search for NaN costs more and "
        "is not in this row.",
        "without anomaly detection a step is faster",
    ),
    Advice(
        "DistributedDataParallel, not DataParallel",
        "a process per GPU, so no lock of Python between them",
        "Needs two GPUs: unit 02.",
        part="02",
    ),
    # ---- today's list
    Advice(
        "data in memory",
        "no loader at all",
        "It saves what the profile calls data.",
        "data in memory makes an image at least 10 % faster",
        "06/4",
        source=TODAY,
    ),
    Advice(
        "fused optimizer, the update alone",
        "one kernel for all weights",
        "It waits for memory and for starts of kernels. Its share bounds the gain in a step.",
        "the fused update alone is at least 50 % faster than Adam's default update",
        "06/3",
        source=TODAY,
    ),
    Advice(
        "torch's own GELU, not a chain",
        "use the operation that exists",
        "One kernel reads and writes once.",
        "torch's own GELU is at least 50 % faster than the chain of operations",
        "06/3",
        source=TODAY,
    ),
    Advice(
        "linear decay, not cosine decay",
        "as good, with one number fewer",
        "Both end near zero, so expect a small difference.",
        "linear decay ends above cosine decay, each at its best of five peaks",
        "06/2",
        POINTS,
        source=TODAY,
    ),
    Advice(
        "channels last",
        "the layout of convolution kernels",
        "It wins where the kernels of a layer want it, and loses in copies between layouts.",
        "channels last makes a step of the convolutional network at least 5 % faster",
        "06/3",
        source=TODAY,
    ),
    Advice(
        "SDPA, a small GPT",
        "one kernel for attention",
        "Its fused kernels do not write the table of all pairs, so it wins on long rows.",
        "SDPA makes a step of the small GPT at least 5 % faster",
        "06/3",
        source=TODAY,
    ),
    Advice(
        "SDPA, long rows, not short ones",
        "one kernel for attention",
        "The table of all pairs grows with the square of the row.",
        "SDPA gains at least 10 % more on long rows than on short ones",
        "06/3",
        source=TODAY,
    ),
    Advice(
        "TF32, a small GPT",
        "float32 on tensor cores",
        "NVIDIA GPUs since Ampere have it.",
        "TF32 makes a step of the small GPT at least 10 % faster",
        "06/3",
        source=TODAY,
    ),
    Advice(
        "CUDA graphs, a small GPT",
        "one launch for all kernels",
        "They save the time to start kernels, so they need many small operations and fixed shapes.",
        "CUDA graphs make a step of the small GPT at least 10 % faster",
        "06/3",
        source=TODAY,
    ),
    Advice(
        "all cheaper steps together, CNN",
        "everything adds up",
        "Pieces share their savings, so they do not multiply.",
        "all changes together make a step of the convolutional network at least 10 % faster",
        "06/3",
        source=TODAY,
    ),
    Advice(
        "all cheaper steps together, GPT",
        "everything adds up",
        "Pieces share their savings, so they do not multiply.",
        "all changes together make a step of the small GPT at least 10 % faster",
        "06/3",
        source=TODAY,
    ),
    Advice(
        "all together, to the target",
        "everything adds up",
        "Pieces share their savings, so they do not multiply.",
        "all advice together reaches the target at least 1.5 times as fast as the plain script",
        "06/4",
        source=TODAY,
    ),
)

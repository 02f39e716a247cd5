"""Known mistakes of exercise sent_bytes, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "whole_tensors": (
        "A ring sends the whole tensor here. Of its N pieces a rank sends N - 1 per half of an all-reduce.",
        ("return n_bytes * (ranks - 1) / ranks", "return n_bytes * (ranks > 1)"),
    ),
    "all_ranks_together": (
        "This is what all ranks send. One rank sends (N - 1) / N of the tensor per half of an all-reduce.",
        ("return n_bytes * (ranks - 1) / ranks", "return n_bytes * (ranks - 1)"),
    ),
    "half_of_the_data": (
        "An all-reduce has two halves. DDP and stage 1 send (N - 1) / N of the gradients twice.",
        ("(2, 2, m + 1, 3 * m)", "(1, 1, m + 1, 3 * m)"),
    ),
    "ddp_per_micro_batch": (
        "The gradients of DDP are sent per micro-batch here. They add up on the rank and are sent once per step.",
        ("(2, 2, m + 1, 3 * m)", "(2 * m, 2 * m, m + 1, 3 * m)"),
    ),
    "once_per_step": (
        "Stages 2 and 3 are counted once per step. No rank keeps whole gradients: they go after each micro-batch.",
        ("(2, 2, m + 1, 3 * m)", "(2, 2, 2, 3)"),
    ),
    "gathered_once": (
        "Stage 3 gathers the weights once per micro-batch here. It gathers before forward and again before backward.",
        ("(2, 2, m + 1, 3 * m)", "(2, 2, m + 1, 2 * m)"),
    ),
    "all_weights": (
        "The data ranks send all weights here. A device has those of its tensor and pipeline rank alone.",
        ("2 * gpt.parameters / (plan.tensor * plan.pipeline)", "2 * gpt.parameters"),
    ),
    "forward_only": (
        "The tensor ranks send half of what they must. A block has two all-reduces forward and two backward, of two "
        "halves each.",
        ("6 if plan.checkpointing else 4", "3 if plan.checkpointing else 2"),
    ),
    "no_second_forward": (
        "Checkpointing runs the forward pass again, with its two all-reduces per block. Count 6.",
        ("6 if plan.checkpointing else 4", "4"),
    ),
    "all_layers": (
        "A pipeline rank has the all-reduces of its own layers. Divide the layers by the pipeline ranks.",
        ("gpt.layers / plan.pipeline", "gpt.layers"),
    ),
    "all_rows": (
        "The whole batch is sent. A data rank has its share of the rows.",
        ("rows / plan.data * gpt.columns", "rows * gpt.columns"),
    ),
    "one_micro_batch": (
        "The activations of one micro-batch are counted. A step sends those of all of them.",
        ("2 * rows / plan.data *", "2 * rows / plan.data / plan.micro_batches *"),
    ),
    "pipeline_cut_by_tensor": (
        "The message of the pipeline is cut among the tensor ranks. After the all-reduce each holds, and sends, all of "
        "it.",
        ("2 * activations if", "2 * activations / plan.tensor if"),
    ),
    "one_direction": (
        "A pipeline rank sends activations to the next rank and gradients to the one before. Count both.",
        ("2 * activations if plan.pipeline", "activations if plan.pipeline"),
    ),
    "one_rank_sends": (
        "A pipeline of one rank has nobody to send to.",
        ("2 * activations if plan.pipeline > 1 else 0", "2 * activations"),
    ),
    "gathered_once_per_step": (
        "Stage 3 gathers the weights once per step here. A rank frees them after use, so it gathers them twice per "
        "micro-batch.",
        ("(2, 2, m + 1, 3 * m)", "(2, 2, m + 1, m + 2)"),
    ),
}


@alternative
def halves_counted(gpt, rows, plan):
    weights = 2 * gpt.parameters / plan.tensor / plan.pipeline
    halves = [2, 2, 1 + plan.micro_batches, 3 * plan.micro_batches][plan.stage]
    layer = 2 * gpt.columns * gpt.width * rows / plan.data
    blocks = gpt.layers / plan.pipeline
    passes = 3 if plan.checkpointing else 2
    return {
        "data": halves * weights * (1 - 1 / plan.data),
        "tensor": passes * 4 * blocks * layer * (1 - 1 / plan.tensor),
        "pipeline": 2 * layer * (plan.pipeline > 1),
    }


@alternative
def axis_by_axis(gpt, rows, plan):
    sent = dict(data=0.0, tensor=0.0, pipeline=0.0)
    activations = 2 * rows * gpt.columns * gpt.width / plan.data
    weights = 2 * gpt.parameters / (plan.tensor * plan.pipeline)
    if plan.data > 1:
        reduce = plan.micro_batches if plan.stage >= 2 else 1
        gather = 2 * plan.micro_batches if plan.stage == 3 else 1
        sent["data"] = (reduce + gather) * weights / plan.data * (plan.data - 1)
    if plan.tensor > 1:
        all_reduces = (4 + 2 * plan.checkpointing) * gpt.layers // plan.pipeline
        sent["tensor"] = all_reduces * 2 * activations / plan.tensor * (plan.tensor - 1)
    if plan.pipeline > 1:
        sent["pipeline"] = 2 * activations
    return sent

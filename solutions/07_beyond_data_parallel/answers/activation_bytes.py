"""Known mistakes of exercise activation_bytes, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "whole_batch": (
        "This counts the whole batch. A rank holds its micro-batch: divide rows by data ranks and micro-batches.",
        ("rows / plan.data / plan.micro_batches * gpt.columns", "rows * gpt.columns"),
    ),
    "all_micro_batches": (
        "All micro-batches of the step are counted together. Without a pipeline, one is freed before the next begins.",
        ("rows / plan.data / plan.micro_batches * gpt.columns", "rows / plan.data * gpt.columns"),
    ),
    "data_forgotten": (
        "The data ranks do not share the sequences here. Divide the rows by their number.",
        ("rows / plan.data / plan.micro_batches", "rows / plan.micro_batches"),
    ),
    "tensor_cuts_all": (
        "Everything is divided by the tensor ranks, even the norms. What these take and return, 4 d + 4 per "
        "token, is whole on every rank.",
        (
            "4 * d + 4 + (12 * d + gpt.heads) / plan.tensor",
            "(16 * d + 4 + gpt.heads) / plan.tensor",
        ),
    ),
    "tensor_forgotten": (
        "Nothing is divided by the tensor ranks. They cut queries, keys, values, attention's output and "
        "the MLP: divide 12 d + heads.",
        ("(12 * d + gpt.heads) / plan.tensor", "12 * d + gpt.heads"),
    ),
    "one_in_flight": (
        "Only one micro-batch is in flight here. The first pipeline rank starts up to P of them before one comes back.",
        ("in_flight = min(plan.pipeline, plan.micro_batches)", "in_flight = 1"),
    ),
    "always_p_in_flight": (
        "P micro-batches are in flight here even if the step has fewer. Take the smaller number.",
        ("in_flight = min(plan.pipeline, plan.micro_batches)", "in_flight = plan.pipeline"),
    ),
    "gpipe": (
        "All micro-batches are in flight, as with GPipe. Here at most P are.",
        ("in_flight = min(plan.pipeline, plan.micro_batches)", "in_flight = plan.micro_batches"),
    ),
    "all_layers": (
        "All layers are counted. A pipeline rank holds only its own: divide them by P.",
        ("gpt.layers / plan.pipeline", "gpt.layers"),
    ),
    "only_the_inputs": (
        "Only the blocks' inputs are counted. One block has all activations while it is computed again: add it once.",
        (" + block - tokens * d)", ")"),
    ),
    "whole_block_per_micro_batch": (
        "A whole block is counted per micro-batch in flight. Backward computes one block of one of them at a time.",
        (
            "size * (in_flight * layers * tokens * d + block - tokens * d)",
            "size * in_flight * (layers * tokens * d + block - tokens * d)",
        ),
    ),
    "input_twice": (
        "The input of the block that is computed again is counted twice. Subtract it once.",
        (" + block - tokens * d)", " + block)"),
    ),
    "inputs_divided": (
        "With checkpointing, the inputs are divided by the tensor ranks. Each tensor rank keeps whole inputs.",
        ("(in_flight * layers * tokens * d +", "(in_flight * layers * tokens * d / plan.tensor +"),
    ),
    "no_heads": (
        "Attention saves one number per head and token: the logarithm of its softmax's sum. Add the heads.",
        ("(12 * d + gpt.heads)", "12 * d"),
    ),
    "two_bytes_always": (
        "The numbers are always counted with 2 bytes. Use `size`.",
        ("size * in_flight", "2 * in_flight"),
    ),
    "gpipe_in_a_pipeline": (
        "All micro-batches of the step are in flight in a pipeline, as with GPipe. With 1F1B at most P are.",
        (
            "min(plan.pipeline, plan.micro_batches)",
            "plan.micro_batches if plan.pipeline > 1 else 1",
        ),
    ),
}


@alternative
def block_by_block(gpt, rows, plan, size=2):
    tokens = gpt.columns * rows / (plan.data * plan.micro_batches)
    norms = 4 * gpt.width + 4
    attention = (4 * gpt.width + gpt.heads) / plan.tensor
    mlp = 8 * gpt.width / plan.tensor
    whole = tokens * (norms + attention + mlp)
    kept = tokens * gpt.width if plan.checkpointing else whole
    total = 0.0
    for _ in range(min(plan.pipeline, plan.micro_batches)):
        total += kept * gpt.layers / plan.pipeline
    if plan.checkpointing:
        total += whole - kept
    return total * size


@alternative
def per_token(gpt, rows, plan, size=2):
    d, t = gpt.width, plan.tensor
    of_block = d * (4 + 12 / t) + gpt.heads / t + 4
    blocks = gpt.layers / plan.pipeline * min(plan.micro_batches, plan.pipeline)
    of_rank = blocks * d + (of_block - d) if plan.checkpointing else blocks * of_block
    return size * of_rank * rows * gpt.columns / plan.data / plan.micro_batches

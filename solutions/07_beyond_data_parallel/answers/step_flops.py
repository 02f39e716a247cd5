"""Known mistakes of exercise step_flops, and right answers in other styles."""

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "forward_only": (
        "This is the forward pass alone. The backward pass takes two products for each one: multiply by 3.",
        ("return 3 * ", "return "),
    ),
    "backward_once": (
        "The backward pass is counted like one forward pass. Each product has two gradients: multiply by 3.",
        ("return 3 * ", "return 2 * "),
    ),
    "multiply_adds": (
        "A multiplication and an addition count as one FLOP here. They are two.",
        ("linear = 24 *", "linear = 12 *"),
        ("attention = 4 *", "attention = 2 *"),
        ("scores = 2 *", "scores = 1 *"),
    ),
    "no_attention": (
        "The products of attention are missing: queries with keys, and weights with values. Each has "
        "2 · columns · width FLOPs per token.",
        ("(linear + attention)", "linear"),
    ),
    "half_attention": (
        "Half of attention is missing: one of its two products, or what the mask hides. Count queries with keys and "
        "weights with values, over all columns.",
        ("attention = 4 *", "attention = 2 *"),
    ),
    "masked_half_left_out": (
        "Attention leaves out the masked scores. They count here, too: take all columns for each token.",
        ("attention = 4 * gpt.columns", "attention = 2 * (gpt.columns + 1)"),
    ),
    "no_scores": (
        "The product that computes the scores of the vocabulary is missing. Add 2 · width · vocabulary per token.",
        (" + scores)", ")"),
    ),
    "scores_per_layer": (
        "The scores are counted in every block. They are computed once, after the last block.",
        (
            "gpt.layers * (linear + attention) + scores",
            "gpt.layers * (linear + attention + scores)",
        ),
    ),
    "per_head": (
        "Attention is multiplied by the number of heads. The heads share the width: together they cost what one would.",
        ("gpt.columns * gpt.width  # of", "gpt.columns * gpt.width * gpt.heads  # of"),
    ),
    "all_tokens_attend": (
        "Tokens attend to all sequences of the batch. A token looks at the `columns` tokens of its own sequence.",
        ("gpt.columns * gpt.width  # of", "tokens * gpt.width  # of"),
    ),
    "no_mlp": (
        "The MLP is missing. Of the 24 · width² FLOPs of a block, it has 16.",
        ("linear = 24 *", "linear = 8 *"),
    ),
    "one_sequence": (
        "This is the step of one sequence. A batch has rows · columns tokens.",
        ("tokens = rows * gpt.columns", "tokens = gpt.columns"),
    ),
}


@mistake(
    "These are six FLOPs per parameter and token. Biases and embedding take none, but attention does."
)
def six_per_parameter(gpt, rows):
    return 6 * gpt.parameters * rows * gpt.columns


@mistake(
    "The embedding is counted as a product. It looks rows up, which takes no FLOPs: count one vocabulary · width."
)
def with_the_embedding(gpt, rows):
    weights = gpt.layers * 12 * gpt.width**2 + 2 * gpt.vocabulary * gpt.width
    return rows * gpt.columns * (6 * weights + 12 * gpt.layers * gpt.columns * gpt.width)


@alternative
def six_per_weight(gpt, rows):
    weights = gpt.layers * 12 * gpt.width**2 + gpt.vocabulary * gpt.width
    per_token = 6 * weights + 12 * gpt.layers * gpt.columns * gpt.width
    return per_token * rows * gpt.columns


@alternative
def product_by_product(gpt, rows):
    def product(n, k, m):
        return 2 * n * k * m

    tokens, width = rows * gpt.columns, gpt.width
    forward = product(tokens, width, gpt.vocabulary)
    for _ in range(gpt.layers):
        forward += product(tokens, width, 3 * width) + product(tokens, width, width)
        forward += 2 * product(tokens, width, 4 * width)
        forward += 2 * rows * product(gpt.columns, width, gpt.columns)
    return 3.0 * forward

"""Known mistakes of exercise adamw_step, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "l2_always": (
        "The decay is always added to the gradient, which is Adam with L2. With `decoupled`, apply it to w alone.",
        ("if decoupled", "if False"),
    ),
    "decoupled_always": (
        "With decoupled=False the decay is not in the gradient. Add weight_decay * w to it before the running means.",
        ("if decoupled", "if True"),
    ),
    "both": (
        "The decay acts twice with `decoupled`: in the gradient and on the weight. Take it out of the gradient.",
        ("    w.mul_", "    grad = grad + weight_decay * w\n                w.mul_"),
    ),
    "decay_without_lr": (
        "The decay is not multiplied by the learning rate. The weight moves by -lr * weight_decay * w.",
        ("lr * weight_decay", "weight_decay"),
    ),
    "decay_after_the_move": (
        "The decay acts on the weight that has already moved. Take the old w: decay first, or keep a copy.",
        ("w.mul_(1 - lr * weight_decay)", "pass"),
        ("mean / size)", "mean / size)\n            w.mul_(1 - lr * weight_decay * decoupled)"),
    ),
    "shrinks_with_l2": (
        "The decay also shrinks w before it enters the gradient. With decoupled=False, leave w itself alone.",
        ("weight_decay * w\n", "weight_decay * w\n                w.mul_(1 - lr * weight_decay)\n"),
    ),
    "no_correction": (
        "The running means are not corrected: both begin at 0 and are too small at first. Divide by 1 - beta ** step.",
        (" / (1 - beta1**step)", ""),
        (" / (1 - beta2**step)", ""),
    ),
    "squares_not_corrected": (
        "Only the mean is corrected, the mean of the squares is not. Divide it by 1 - beta2 ** step.",
        (" / (1 - beta2**step)", ""),
    ),
    "steps_from_zero": (
        "The correction uses step + 1, as if steps counted from 0. The first step has number 1.",
        ("### BEGIN SOLUTION", "step += 1"),
    ),
    "eps_in_the_root": (
        "eps is added inside the root. Add it after you take the root.",
        (").sqrt() + eps", " + eps).sqrt()"),
    ),
    "eps_before_the_correction": (
        "eps is added to the root of the uncorrected squares. Correct first, then take the root, then add eps.",
        (
            "(square / (1 - beta2**step)).sqrt() + eps",
            "(square.sqrt() + eps) / (1 - beta2**step) ** 0.5",
        ),
    ),
    "no_root": (
        "The root is missing: the mean is divided by the mean of the squares. Take its square root.",
        (".sqrt()", ""),
    ),
    "betas_swapped": (
        "The betas are swapped. The first belongs to the mean of the gradients, the second to the mean of the squares.",
        ("beta1, beta2 =", "beta2, beta1 ="),
    ),
    "keeps_the_new": (
        "The weights of the average are swapped: beta is the share of the old mean that is kept.",
        ("(beta1).add_(grad, alpha=1 - beta1)", "(1 - beta1).add_(grad, alpha=beta1)"),
        (
            "(beta2).addcmul_(grad, grad, value=1 - beta2)",
            "(1 - beta2).addcmul_(grad, grad, value=beta2)",
        ),
    ),
    "into_the_gradient": (
        "The decay is added to the caller's gradient in place. Make a new tensor: grad + weight_decay * w.",
        ("grad = grad +", "grad +="),
    ),
    "new_tensors": (
        "You make new tensors, so the caller's stay as they were. Write into the caller's: mul_, add_, sub_.",
        (
            "### BEGIN SOLUTION",
            "params, means, squares = ([t.detach().clone() for t in own] for own in (params, means, squares))",
        ),
    ),
    "new_entries": (
        "The lists get new means and squares, but the caller's tensors stay as they were. Write into these: mul_, "
        "add_.",
        (
            "### BEGIN SOLUTION",
            "means[:], squares[:] = [m.clone() for m in means], [s.clone() for s in squares]",
        ),
    ),
    "corrected_in_place": (
        "The corrected means are stored: the next step corrects them again. Keep the correction in a new tensor.",
        ("(square / (1 - beta2**step))", "square.div_(1 - beta2**step)"),
        ("lr / (1 - beta1**step) * mean", "lr * mean.div_(1 - beta1**step)"),
    ),
}


@alternative
@torch.no_grad()
def as_in_the_paper(
    params,
    grads,
    means,
    squares,
    step,
    lr,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.01,
    decoupled=True,
):
    for w, grad, mean, square in zip(params, grads, means, squares, strict=True):
        pull = lr * weight_decay * w if decoupled else 0.0
        grad = grad if decoupled else grad + weight_decay * w
        mean.copy_(betas[0] * mean + (1 - betas[0]) * grad)
        square.copy_(betas[1] * square + (1 - betas[1]) * grad**2)
        corrected, root = mean / (1 - betas[0] ** step), (square / (1 - betas[1] ** step)).sqrt()
        w.sub_(lr * corrected / (root + eps) + pull)


@alternative
@torch.no_grad()
def all_at_once(
    params,
    grads,
    means,
    squares,
    step,
    lr,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.01,
    decoupled=True,
):
    if not len(params) == len(grads) == len(means) == len(squares):
        raise ValueError("the lists differ in length")
    if decoupled:
        torch._foreach_mul_(params, 1 - lr * weight_decay)
    else:
        grads = torch._foreach_add(grads, params, alpha=weight_decay)
    torch._foreach_lerp_(means, grads, 1 - betas[0])
    torch._foreach_mul_(squares, betas[1])
    torch._foreach_addcmul_(squares, grads, grads, value=1 - betas[1])
    roots = torch._foreach_sqrt(torch._foreach_div(squares, 1 - betas[1] ** step))
    torch._foreach_add_(roots, eps)
    for w, mean, root in zip(params, means, roots, strict=True):
        w.addcdiv_(mean, root, value=-lr / (1 - betas[0] ** step))

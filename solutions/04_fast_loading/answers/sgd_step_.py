"""Known mistakes of exercise sgd_step_, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

PRODUCT = "torch.mv(x, scaled, out=residual)"
MISTAKES = {
    "normalised_copy": (
        "Each step makes a normalised copy of x, as large as x. Move the normalisation to the weights: "
        "z w + b = x (w / std) + (b - mean . (w / std)).",
        (PRODUCT, "x = (x - mean) / std\n        residual = (x @ w)"),
        ("add_(shift)", "add_(b)"),
        ("gradient.addcmul_(mean, total, value=-1).div_(std)", ""),
    ),
    "vectors_made_anew": (
        "The step allocates new vectors: w / std, the residuals, the gradient. Compute in scratch: out=, add_, addmv_.",
        ('torch.div(w, std, out=scratch["scaled"])', "w / std"),
        ('scratch["gradient"].zero_()', "torch.zeros_like(w)"),
        ("        " + PRODUCT, "        residual = (x @ scaled)"),
    ),
    "uphill": (
        "The step goes uphill. The residual is z w + b - y, not y - z w - b; subtract the step.",
        ("w.sub_", "w.add_"),
        ("b.sub_", "b.add_"),
    ),
    "normalises_x_in_place": (
        "x is normalised in place, but it belongs to the loader, as does the memory next to it. Normalise the weights.",
        ("torch.mv(x, scaled", "x.sub_(mean).div_(std)\n        torch.mv(x, w"),
        ("add_(shift)", "add_(b)"),
        ("gradient.addcmul_(mean, total, value=-1).div_(std)", ""),
    ),
    "mean_left_out_of_the_residual": (
        "A residual is x (w / std) + b - y, so the mean is not subtracted. Shift b by - mean . (w / std).",
        ("add_(shift)", "add_(b)"),
    ),
    "mean_left_out_of_the_gradient": (
        "The gradient of w is x^T r / std. For normalised columns, subtract mean times the sum of r before you divide.",
        (".addcmul_(mean, total, value=-1)", ""),
    ),
    "std_left_out_of_the_gradient": (
        "The gradient of w is not divided by std: z is (x - mean) / std, and so is its transpose.",
        (".div_(std)", ""),
    ),
    "derivative_of_the_whole_square": (
        "The step is twice as long: it follows the squared residual. The gradients here are z^T r / n and the mean of "
        "r.",
        ("(gradient, alpha=lr", "(gradient, alpha=2 * lr"),
        ("(total, alpha=lr", "(total, alpha=2 * lr"),
    ),
    "sum_of_gradients": (
        "The gradients are sums over the rows. Divide them by the number of rows of all blocks.",
        ("(gradient, alpha=lr / n", "(gradient, alpha=lr"),
        ("(total, alpha=lr / n", "(total, alpha=lr"),
    ),
    "sum_for_the_intercept": (
        "b moves by the sum of the residuals, w by their mean. Divide both by the rows of all blocks.",
        ("(total, alpha=lr / n", "(total, alpha=lr"),
    ),
    "residuals_of_the_last_block": (
        "The sum of the residuals is read from scratch after the loop, where the last block alone is. Add it up block "
        "by block.",
        ("total += ", "total = "),
    ),
    "finished_in_every_block": (
        "The gradient is divided by std in every block, so early blocks are divided several times. Do it after "
        "the loop.",
        (
            "    gradient.addcmul_(mean, total, value=-1).div_(std)",
            "        gradient.addcmul_(mean, total, value=-1).div_(std)",
        ),
    ),
    "mean_loss": (
        "What is returned is the mean of the squared residuals. Return their sum.",
        ("return loss", "return loss / n"),
    ),
    "stale_gradient": (
        "The gradient is added to what scratch held before the step. Set scratch['gradient'] to 0 first.",
        (".zero_()", ""),
    ),
    "names_bound_anew": (
        "New tensors are bound to the names w and b, and the caller's stay as they are. Change them in place: "
        "w.sub_(...).",
        ("w.sub_", "w = w.sub"),
        ("b.sub_", "b = b.sub"),
    ),
    "loss_as_a_number": (
        "The sum is a Python number: .item() or float() waits for the device. Return the tensor.",
        ("return loss", "return loss.item()"),
    ),
    "waits_for_each_block": (
        "A value is fetched from the device inside the step, which waits for it. Keep sums as tensors of one element.",
        ("residual.sum()", "residual.sum().item()"),
    ),
    "a_step_for_each_block": (
        "Each block makes its own step. Add up gradients and rows, and change w and b once, after the last block.",
        (
            "    scaled =",
            "    if type(blocks) is not tuple:\n"
            "        return sum(sgd_step_((block,), w, b, mean, std, lr, scratch) for block in blocks)\n"
            "    scaled =",
        ),
    ),
    "blocks_collected": (
        "You collect all blocks first, but the loader refills their memory. Process each before you take the next.",
        ("in blocks:", "in list(blocks):"),
    ),
    "loss_in_scratch": (
        "The sum is kept in a buffer of scratch, and the next step overwrites it. Return a new tensor.",
        ("return loss", 'return scratch["residual"][:1].copy_(loss)'),
    ),
    "rows_of_the_last_block": (
        "The gradients are divided by the rows of the last block. Divide them by the rows of all blocks.",
        ("lr / n)\n    b", "lr / len(x))\n    b"),
        ("b.sub_(total, alpha=lr / n)", "b.sub_(total, alpha=lr / len(x))"),
    ),
}


@alternative
def through_addmv(blocks, w, b, mean, std, lr, scratch):
    v, g = scratch["scaled"], scratch["gradient"]
    torch.divide(w, std, out=v)
    g.fill_(0)
    offset = b.squeeze() - mean @ v
    rows, sums, squares = 0, 0, 0
    for x, y in blocks:
        k = y.shape[0]
        r = scratch["residual"].narrow(0, 0, k)
        r.copy_(y).neg_().add_(offset)
        r.addmv_(x, v)
        squares = squares + torch.linalg.vecdot(r, r)
        sums = sums + r.sum()
        torch.addmv(g, x.t(), r, out=g)
        rows = rows + k
    torch.mul(mean, sums, out=v)
    g -= v
    g /= std
    g *= lr / rows
    w -= g
    b -= sums * (lr / rows)
    return squares


@alternative
def mean_taken_off_the_weights(blocks, w, b, mean, std, lr, scratch):
    v, g, n = scratch["scaled"].copy_(w).div_(std), scratch["gradient"], 0
    sums = [w.new_zeros(1), w.new_zeros(1)]  # of residuals, of their squares
    offset = torch.sub(b, torch.dot(mean, v))
    for block, (x, y) in enumerate(blocks):
        r = scratch["residual"][0 : y.numel()]
        torch.addmv(offset.expand(y.numel()), x, v, out=r)
        r.sub_(y)
        sums[0].add_(r.sum())
        g.addmv_(x.mT, r, beta=min(block, 1))
        sums[1].add_(r.square_().sum())
        n += y.numel()
    w.addcdiv_(g, std, value=-lr / n)
    torch.div(mean, std, out=g)
    w.addcmul_(g, sums[0], value=lr / n)
    b.add_(sums[0], alpha=-lr / n)
    return sums[1]

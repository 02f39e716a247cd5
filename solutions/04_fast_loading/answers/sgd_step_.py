"""Known mistakes of exercise sgd_step_, and right answers in other styles."""

import warnings

import torch

from course.checks.engine import alternative, mistake


def step_by_parts(
    blocks, w, b, mean, std, lr, scratch,
    zero=True, shift=True, center=True, scale=True, factor=1.0, mean_of="all", each=False, loss_of="before",
):  # fmt: skip
    """A right step, with one idea to get wrong each."""
    scaled = torch.div(w, std, out=scratch["scaled"])
    offset = b - mean.dot(scaled) if shift else b.clone()
    gradient = scratch["gradient"]
    if zero:
        gradient.zero_()
    n, total, loss, count = 0, torch.zeros_like(b), torch.zeros_like(b), 0
    for x, y in blocks:
        residual = torch.mv(x, scaled, out=scratch["residual"][: len(x)]).add_(offset).sub_(y)
        share = 1 / len(x) if mean_of == "blocks" else 1
        gradient.addmv_(x.T, residual, alpha=share)
        total += residual.sum() * share
        loss += residual.dot(residual)
        n, count = (len(x) if mean_of == "last" else n + len(x)), count + 1
    if center:
        gradient.addcmul_(mean, total, value=-1)
    if scale:
        gradient.div_(std)
    rate = factor * lr / (count if mean_of == "blocks" else 1 if mean_of == "none" else n)
    w.sub_(gradient, alpha=rate)
    b.sub_(total, alpha=rate)
    return loss / n if loss_of == "mean" else loss


@mistake(
    "sgd_step_",
    "Each step makes a normalised copy of x, as large as x. Move the normalisation to the weights: "
    "z w + b = x (w / std) + (b - mean . (w / std)).",
)
def normalised_copy(blocks, w, b, mean, std, lr, scratch):
    n, gradient, total, loss = 0, torch.zeros_like(w), torch.zeros_like(b), torch.zeros_like(b)
    for x, y in blocks:
        z = (x - mean) / std
        residual = z @ w + b - y
        gradient, total, n = gradient + z.T @ residual, total + residual.sum(), n + len(x)
        loss = loss + residual.square().sum()
    w -= lr * gradient / n
    b -= lr * total / n
    return loss


@mistake(
    "sgd_step_",
    "The step makes vectors anew: w / std, the residuals, the gradient. Compute in scratch: out=, add_, addmv_.",
)
def vectors_made_anew(blocks, w, b, mean, std, lr, scratch):
    scaled, n = w / std, 0
    gradient, total, loss = torch.zeros_like(w), torch.zeros_like(b), torch.zeros_like(b)
    for x, y in blocks:
        residual = x @ scaled + (b - mean @ scaled) - y
        gradient, total, n = gradient + x.T @ residual, total + residual.sum(), n + len(x)
        loss = loss + residual.square().sum()
    w -= lr * (gradient - mean * total) / std / n
    b -= lr * total / n
    return loss


@mistake(
    "sgd_step_",
    "The step goes uphill: the residual is z w + b - y, not y - z w - b, and the step is taken off.",
)
def uphill(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, factor=-1.0)


@mistake(
    "sgd_step_",
    "The whole residual buffer is the output, and torch resizes it to the block. Give a slice: [: len(x)].",
)
def residual_resized(blocks, w, b, mean, std, lr, scratch):
    warnings.simplefilter("ignore")
    scaled, gradient = torch.div(w, std, out=scratch["scaled"]), scratch["gradient"].zero_()
    offset, n, total, loss = b - mean.dot(scaled), 0, torch.zeros_like(b), torch.zeros_like(b)
    for x, y in blocks:
        residual = torch.mv(x, scaled, out=scratch["residual"]).add_(offset).sub_(y)
        gradient.addmv_(x.T, residual)
        total, loss, n = total + residual.sum(), loss + residual.dot(residual), n + len(x)
    w.sub_(gradient.addcmul_(mean, total, value=-1).div_(std), alpha=lr / n)
    b.sub_(total, alpha=lr / n)
    return loss


@mistake(
    "sgd_step_",
    "x is normalised in place, but it belongs to the loader, as does the memory beside it. Normalise the weights.",
)
def normalises_x_in_place(blocks, w, b, mean, std, lr, scratch):
    gradient = scratch["gradient"].zero_()
    n, total, loss = 0, torch.zeros_like(b), torch.zeros_like(b)
    for x, y in blocks:
        x.sub_(mean).div_(std)
        residual = torch.mv(x, w, out=scratch["residual"][: len(x)]).add_(b).sub_(y)
        gradient.addmv_(x.T, residual)
        total, loss, n = total + residual.sum(), loss + residual.dot(residual), n + len(x)
    w.sub_(gradient, alpha=lr / n)
    b.sub_(total, alpha=lr / n)
    return loss


@mistake(
    "sgd_step_",
    "A residual is x (w / std) + b - y: the mean is not taken off. Shift b by - mean . (w / std).",
)
def mean_left_out_of_the_residual(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, shift=False)


@mistake(
    "sgd_step_",
    "The gradient of w is x^T r / std. For normalised columns take off mean times the sum of r before you divide.",
)
def mean_left_out_of_the_gradient(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, center=False)


@mistake("sgd_step_", "The gradient of w is not divided by std: z is (x - mean) / std, and so is its transpose.")
def std_left_out_of_the_gradient(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, scale=False)


@mistake(
    "sgd_step_",
    "The step is twice as long: it follows the squared residual. The gradients here are z^T r / n and the mean of r.",
)
def derivative_of_the_whole_square(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, factor=2.0)


@mistake("sgd_step_", "The gradients are sums over the rows. Divide them by the number of rows of all blocks.")
def sum_of_gradients(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, mean_of="none")


@mistake("sgd_step_", "b moves by the sum of the residuals, w by their mean. Divide both by the rows of all blocks.")
def sum_for_the_intercept(blocks, w, b, mean, std, lr, scratch):
    taken, before = [], b.clone()

    def counted():
        for x, y in blocks:
            taken.append(len(x))
            yield x, y

    loss = step_by_parts(counted(), w, b, mean, std, lr, scratch)
    b.sub_((before - b) * (sum(taken) - 1))
    return loss


@mistake(
    "sgd_step_",
    "The sum of the residuals is read from scratch after the loop, where the last block alone is. Add it up block by "
    "block.",
)
def residuals_of_the_last_block(blocks, w, b, mean, std, lr, scratch):
    scaled = torch.div(w, std, out=scratch["scaled"])
    gradient, n, loss, shift = scratch["gradient"].zero_(), 0, torch.zeros_like(b), b - mean.dot(scaled)
    for x, y in blocks:
        residual = torch.mv(x, scaled, out=scratch["residual"][: len(x)]).add_(shift).sub_(y)
        gradient.addmv_(x.T, residual)
        loss += residual.dot(residual)
        n += len(x)
    w.sub_(gradient.addcmul_(mean, residual.sum(), value=-1).div_(std), alpha=lr / n)
    b.sub_(residual.sum(), alpha=lr / n)
    return loss


@mistake("sgd_step_", "What is returned is the mean of the squared residuals. Return their sum.")
def mean_loss(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, loss_of="mean")


@mistake(
    "sgd_step_",
    "The gradient is added to what scratch held before the step. Set scratch['gradient'] to 0 first.",
)
def stale_gradient(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, zero=False)


@mistake(
    "sgd_step_",
    "New tensors are bound to the names w and b, and the caller's stay as they are. Change them in place: w.sub_(...).",
)
def names_bound_anew(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w.clone(), b.clone(), mean, std, lr, scratch)


@mistake("sgd_step_", "The sum is a Python number: .item() or float() waits for the device. Return the tensor.")
def loss_as_a_number(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch).item()


@mistake(
    "sgd_step_",
    "A value is fetched from the device inside the step, which waits for it. Keep sums as tensors of one element.",
)
def waits_for_each_block(blocks, w, b, mean, std, lr, scratch):
    scaled = torch.div(w, std, out=scratch["scaled"])
    gradient, offset = scratch["gradient"].zero_(), float(b - mean.dot(scaled))
    n, total, loss = 0, 0.0, torch.zeros_like(b)
    for x, y in blocks:
        residual = torch.mv(x, scaled, out=scratch["residual"][: len(x)]).add_(offset).sub_(y)
        gradient.addmv_(x.T, residual)
        total, loss, n = total + residual.sum().item(), loss + residual.dot(residual), n + len(x)
    gradient.add_(mean, alpha=-total).div_(std)
    w.sub_(gradient, alpha=lr / n)
    b.sub_(lr * total / n)
    return loss


@mistake(
    "sgd_step_",
    "Each block makes a step of its own. Add up gradients and rows, and change w and b once, after the last block.",
)
def a_step_for_each_block(blocks, w, b, mean, std, lr, scratch):
    return sum(step_by_parts([block], w, b, mean, std, lr, scratch) for block in blocks)


@mistake(
    "sgd_step_",
    "All blocks are collected first, but their memory is filled anew by the loader. Use each up before the next.",
)
def blocks_collected(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(list(blocks), w, b, mean, std, lr, scratch)


@mistake("sgd_step_", "The sums are divided by the rows of the last block. Add up the rows of all blocks.")
def rows_of_the_last_block(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, mean_of="last")


@mistake(
    "sgd_step_",
    "The mean gradients of the blocks are averaged, so rows of a small block weigh more. Divide sums by all rows.",
)
def mean_of_block_means(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, mean_of="blocks")


@mistake(
    "sgd_step_",
    "The sum is kept in a buffer of scratch, and the next step overwrites it. Return a tensor of its own.",
)
def loss_in_scratch(blocks, w, b, mean, std, lr, scratch):
    loss = step_by_parts(blocks, w, b, mean, std, lr, scratch)
    return scratch["residual"][:1].copy_(loss)


@alternative("sgd_step_")
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


@alternative("sgd_step_")
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

"""Known mistakes of exercise step_in_place, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "normalised_copy": (
        "The normalised batch is a new tensor, as large as x. Normalise x where it lies: x.sub_(mean).div_(std).",
        ("x.sub_(mean).div_(std)", "x = (x - mean) / std"),
    ),
    "one_copy_left": (
        "There is a new tensor as large as x, such as x - mean or x * residual[:, None]. Use x.sub_(mean) and "
        "x.T @ residual.",
        ("x.sub_(mean).div_(std)", "x.copy_((x - mean).div_(std))"),
    ),
    "names_bound_anew": (
        "New tensors are bound to the names w and b, and the caller's stay as they are. Change them in place: "
        "w.sub_(...).",
        ("w.sub_", "w = w.sub"),
        ("b.sub_", "b = b.sub"),
    ),
    "uphill": (
        "The step goes uphill. The residual is z w + b - y; subtract the step.",
        ("w.sub_", "w.add_"),
        ("b.sub_", "b.add_"),
    ),
    "sum_of_gradients": (
        "The gradient of w is a sum over the rows. Divide it by their number.",
        ("alpha=lr / len(x)", "alpha=lr"),
    ),
    "derivative_of_the_whole_square": (
        "The step is twice as long: it follows the squared residual. The gradients here are z^T r / n and the mean of "
        "r.",
        ("alpha=lr / len(x)", "alpha=2 * lr / len(x)"),
        ("alpha=lr)", "alpha=2 * lr)"),
    ),
    "residual_in_y": (
        "The residual is computed in y, but y belongs to the loader. Use the tensor that x @ w makes.",
        ("residual = (x @ w).add_(b).sub_(y)", "residual = y.neg_().add_(x @ w).add_(b)"),
    ),
    "mean_loss": (
        "What is returned is the mean of the squared residuals. Return their sum.",
        ("residual.dot(residual)", "residual.square().mean()"),
    ),
    "loss_after_the_step": (
        "The residuals are those after the step. Return the sum of squares of those before it.",
        ("return residual.dot(residual)", "return (x @ w).add_(b).sub_(y).square_().sum()"),
    ),
    "loss_as_a_number": (
        "The sum is a Python number: .item() or float() waits for the device. Return the tensor.",
        ("residual.dot(residual)", "residual.dot(residual).item()"),
    ),
    "std_before_mean": (
        "You divide by std before you subtract the mean. Subtract first.",
        ("x.sub_(mean).div_(std)", "x.div_(std).sub_(mean)"),
    ),
    "intercept_after_the_weights": (
        "b follows residuals that are computed with the new w. Use those of before the step for both.",
        ("residual.mean()", "(x @ w + b - y).mean()"),
    ),
    "sums_for_both": (
        "w and b move by sums over the rows. Divide both by the number of rows.",
        ("alpha=lr / len(x)", "alpha=lr"),
        ("residual.mean()", "residual.sum()"),
    ),
    "std_made_larger": (
        "A small number is added to std in place, and std belongs to the caller. It is above 0: divide by it as it is.",
        ("x.sub_(mean).div_(std)", "x.sub_(mean).div_(std.add_(1e-8))"),
    ),
}


@alternative
def with_assignment_operators(x, y, w, b, mean, std, lr):
    x -= mean
    x /= std
    residual = torch.mv(x, w)
    residual += b - y
    loss = residual.square().sum()
    w -= lr * (residual @ x) / len(y)
    b -= lr * residual.mean()
    return loss


@alternative
def with_out_arguments(x, y, w, b, mean, std, lr):
    torch.sub(x, mean, out=x)
    torch.div(x, std, out=x)
    r = torch.addmv(b.expand(len(y)), x, w).sub_(y)
    w.addmv_(x.T, r, alpha=-lr / y.numel())
    b.add_(r.sum(), alpha=-lr / y.numel())
    return torch.linalg.vecdot(r, r)

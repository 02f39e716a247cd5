"""Known mistakes of exercise ridge_by_cg, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative, mistake

STEP = "w, residual = w + step * direction, residual - step * product"
MISTAKES = {
    "product_not_divided": (
        "X^T y is divided by the number of rows, X^T X v is not. The objective divides both: divide the product, too.",
        ("read()) / rows", "read())"),
    ),
    "no_ridge": (
        "The product lacks `strength * direction`: this is the regression without its ridge. A is "
        "X^T X / n + strength I.",
        (" + strength * direction", ""),
    ),
    "ridge_times_rows": (
        "The ridge is n times too strong: X^T X v is divided by the rows, and strength is multiplied by them. A is "
        "X^T X / n + strength I.",
        ("strength * direction", "rows * strength * direction"),
    ),
    "residual_anew": (
        "Each iteration computes the residual from scratch, with an extra pass. Update it instead: residual - step * "
        "product.",
        (
            STEP,
            "w = w + step * direction\n"
            "        residual = (right - sum(x.T @ (x @ w) for x, _ in read())) / rows - strength * w",
        ),
        ("passes += 1", "passes += 2"),
    ),
    "sums_for_means": (
        "The ridge is n times too weak compared with the sums over the rows. Divide both sums by n, and leave "
        "strength as it is.",
        ("right / rows", "right"),
        ("read()) / rows", "read())"),
    ),
    "mean_of_batch_means": (
        "The mean is taken over the means of the batches, in which the rows of a small batch count for more. Add up "
        "sums, and divide once by the number of all rows.",
        ("x.T @ y, rows + len(y)", "x.T @ y / len(y), rows + 1"),
        ("(x @ direction)", "(x @ direction) / len(x)"),
    ),
    "steepest_descent": (
        "Every direction is the residual itself: this is steepest descent, which needs many more passes. Add the old "
        "direction, times the ratio of the new square to the old one.",
        ("residual + square / before * direction", "residual"),
    ),
    "ratio_of_norms": (
        "The old direction is multiplied by the ratio of the norms. It takes the ratio of their squares.",
        ("square / before", "(square / before).sqrt()"),
    ),
    "ratio_upside_down": (
        "The ratio of the squares is upside down. The old direction takes the new square over the old one.",
        ("square / before", "before / square"),
    ),
    "brackets_forgotten": (
        "The Gram matrix X^T X is formed: 10,000 columns would make it 400 MB and the work 5,000 times as much. "
        "Multiply by the vector first, x.T @ (x @ v).",
        ("(x @ direction)", "x @ direction"),
    ),
    "direction_changed_in_place": (
        "Residual and direction are two names of one tensor at the start, and the first step changes it in place. "
        "Clone one of them, or make new tensors.",
        (STEP, "w += step * direction\n        residual -= step * product"),
    ),
    "kept_batches": (
        "The batches are kept in a list, but they are views of one buffer, which is refilled: in the end all of them "
        "show the same memory. Use up each batch before the next, and call read() again for the next pass.",
        (
            "    right, rows = 0, 0",
            "    kept = list(read())\n    read = lambda: kept\n    right, rows = 0, 0",
        ),
    ),
    "rows_in_a_pass": (
        "An extra pass counts the rows or computes the first residual. The pass that adds up X^T y counts them, and "
        "its X^T y / n is that residual, for w is 0.",
        ("right, rows = 0, 0", "right, rows = 0, sum(len(y) for _, y in read())"),
        ("rows + len(y)", "rows"),
        ("residuals = 1", "residuals = 2"),
    ),
    "first_pass_not_counted": (
        "The first pass, that of X^T y, is not counted. It reads the whole file as well: begin with passes = 1.",
        ("residuals = 1", "residuals = 0"),
    ),
    "square_against_tolerance": (
        "The squared norm is compared with the tolerance itself, so it ends too early. Square the tolerance or take "
        "the root.",
        ("tolerance**2", "tolerance"),
    ),
    "absolute_tolerance": (
        "The residual is compared with the tolerance alone, so the number of passes depends on the units of y. "
        "Compare it with the tolerance times the norm of X^T y / n.",
        ("tolerance**2 * start", "tolerance**2"),
    ),
    "squares_listed": ("The list holds squares of the norms. Take their roots.", (".sqrt()", "")),
    "most_iterations": (
        "`most` limits the iterations, so there is a pass more than allowed: the first one counts, too.",
        ("passes < most", "passes <= most"),
    ),
    "begins_with_one": (
        "The list begins with the residual before the first iteration, 1. Add an entry after each iteration only.",
        ("passes, residuals = 1, []", "passes, residuals = 1, [1.0]"),
    ),
    "residuals_not_relative": (
        "The list holds the norms themselves. Divide each by the norm of X^T y / n.",
        ("(square / start).sqrt()", "square.sqrt()"),
    ),
    "iterates_at_least_once": (
        "There is always an iteration, even if w = 0 is the solution, and 0 / 0 is nan. Check before each iteration.",
        ("square > tolerance**2 * start", "(passes == 1 or square > tolerance**2 * start)"),
    ),
}


@mistake(
    "The Gram matrix is added up and the system solved: one pass, but the matrix has columns x columns entries, and "
    "each row costs that many multiplications. Only products with vectors are asked for."
)
def gram_solved(read, columns, strength, tolerance=1e-5, most=30):
    gram, right, rows = 0, 0, 0
    for x, y in read():
        gram, right, rows = gram + x.T @ x, right + x.T @ y, rows + len(y)
    ridge = strength * torch.eye(columns, device=right.device)
    return torch.linalg.solve(gram / rows + ridge, right / rows), 1, []


@alternative
def in_double_precision(read, columns, strength, tolerance=1e-5, most=30):
    passes, n, b = 0, 0, None

    def data():
        nonlocal passes
        passes += 1
        for x, y in read():
            yield x.double(), y.double()

    for x, y in data():
        b = b if b is not None else torch.zeros(columns, dtype=torch.float64, device=x.device)
        b += torch.mv(x.t(), y)
        n += x.shape[0]
    b /= n
    w, r, p, history = torch.zeros_like(b), b.clone(), b.clone(), []
    target = tolerance * b.norm().item()
    for _ in range(most - 1):
        norm = r.norm().item()
        if norm <= target:
            break
        q = strength * p
        for x, _ in data():
            q.add_(torch.mv(x.t(), torch.mv(x, p)), alpha=1 / n)
        alpha = norm**2 / torch.dot(p, q).item()
        w.add_(p, alpha=alpha)
        r.sub_(q, alpha=alpha)
        history.append(r.norm().item() / b.norm().item())
        p.mul_((r.norm().item() / norm) ** 2).add_(r)
    return w.float(), passes, history


class _Ridge:
    """The matrix A as a linear map; every product is a pass."""

    def __init__(self, read, strength):
        self.read, self.strength, self.passes, self.rows = read, strength, 0, 0

    def pass_over(self, function):
        self.passes += 1
        return sum(function(*batch) for batch in self.read())

    def right(self):
        def part(x, y):
            self.rows += y.numel()
            return torch.einsum("nd,n->d", x, y)

        return self.pass_over(part) / self.rows

    def __matmul__(self, v):
        return (
            self.pass_over(lambda x, y: (x * (x @ v)[:, None]).sum(0)) / self.rows
            + self.strength * v
        )


@alternative
def with_a_linear_map(read, columns, strength, tolerance=1e-5, most=30):
    a = _Ridge(read, strength)
    b = a.right()
    w, history, direction, residual = torch.zeros_like(b), [1.0], b, b
    while history[-1] > tolerance and a.passes < most and b.any():
        image = a @ direction
        step = (residual @ direction) / (image @ direction)
        w = torch.add(w, direction * step)
        residual = residual - image * step
        direction = residual - direction * (residual @ image) / (direction @ image)
        history.append(float(torch.linalg.vector_norm(residual) / torch.linalg.vector_norm(b)))
    return w, a.passes, history[1:]

"""Known mistakes of exercise ridge_by_cg, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


def _right(read):
    """(X^T y / n, n) by one pass."""
    total, rows = 0, 0
    for x, y in read():
        total, rows = total + x.T @ y, rows + len(y)
    return total / rows, rows


def _product(read, v, rows, strength):
    return sum(x.T @ (x @ v) for x, _ in read()) / rows + strength * v


def _turned(residual, ratio, direction):
    return residual + ratio * direction


def _cg(read, columns, strength, tolerance, most, right=_right, product=_product, turned=_turned, least=None, passes=1):
    """Right conjugate gradients in pieces, so that each mistake can spoil one of them."""
    residual, rows = right(read)
    direction, w = residual, torch.zeros_like(residual)
    start = square = residual @ residual
    least = tolerance**2 * start if least is None else least
    residuals = []
    while passes < most and square > least:
        image = product(read, direction, rows, strength)
        step = square / (direction @ image)
        w, residual = w + step * direction, residual - step * image
        before, square = square, residual @ residual
        direction = turned(residual, square / before, direction)
        passes += 1
        residuals.append((square / start).sqrt().item())
    return w, passes, residuals


@mistake(
    "ridge_by_cg",
    "X^T y is divided by the number of rows, X^T X v is not. The objective divides both: divide the product, too.",
)
def product_not_divided(read, columns, strength, tolerance=1e-5, most=30):
    def product(read, v, rows, strength):
        return _product(read, v, 1, strength)

    return _cg(read, columns, strength, tolerance, most, product=product)


@mistake(
    "ridge_by_cg",
    "The product lacks `strength * direction`: this is the regression without its ridge. A is X^T X / n + strength I.",
)
def no_ridge(read, columns, strength, tolerance=1e-5, most=30):
    return _cg(read, columns, 0.0, tolerance, most)


@mistake(
    "ridge_by_cg",
    "The ridge is n times too strong: X^T X v is divided by the rows, and strength is multiplied by them. A is "
    "X^T X / n + strength I.",
)
def ridge_times_rows(read, columns, strength, tolerance=1e-5, most=30):
    def product(read, v, rows, strength):
        return _product(read, v, rows, rows * strength)

    return _cg(read, columns, strength, tolerance, most, product=product)


@mistake(
    "ridge_by_cg",
    "The residual is computed anew in each iteration, by a pass of its own. Carry it along: residual - step * product.",
)
def residual_anew(read, columns, strength, tolerance=1e-5, most=30):
    right, rows = _right(read)
    residual, direction, w, passes = right, right, torch.zeros_like(right), 1
    start = square = right @ right
    residuals = []
    while passes < most and square > tolerance**2 * start:
        w = w + square / (direction @ _product(read, direction, rows, strength)) * direction
        residual = right - _product(read, w, rows, strength)
        before, square = square, residual @ residual
        direction = residual + square / before * direction
        passes += 2
        residuals.append((square / start).sqrt().item())
    return w, passes, residuals


@mistake(
    "ridge_by_cg",
    "The ridge is n times too weak beside the sums over the rows. Divide both of these by n, and leave strength as it "
    "is.",
)
def sums_for_means(read, columns, strength, tolerance=1e-5, most=30):
    def right(read):
        mean, rows = _right(read)
        return mean * rows, 1

    return _cg(read, columns, strength, tolerance, most, right=right)


@mistake(
    "ridge_by_cg",
    "The mean is taken over the means of the batches, in which the rows of a small batch count for more. Add up sums, "
    "and divide once by the number of all rows.",
)
def mean_of_batch_means(read, columns, strength, tolerance=1e-5, most=30):
    def right(read):
        means = [x.T @ y / len(y) for x, y in read()]
        return sum(means) / len(means), len(means)

    def product(read, v, batches, strength):
        return sum(x.T @ (x @ v) / len(x) for x, _ in read()) / batches + strength * v

    return _cg(read, columns, strength, tolerance, most, right=right, product=product)


@mistake(
    "ridge_by_cg",
    "Every direction is the residual itself: this is steepest descent, which needs many more passes. Add the old "
    "direction, times the ratio of the new square to the old one.",
)
def steepest_descent(read, columns, strength, tolerance=1e-5, most=30):
    return _cg(read, columns, strength, tolerance, most, turned=lambda residual, ratio, direction: residual)


@mistake(
    "ridge_by_cg",
    "The old direction is multiplied by the ratio of the norms. It takes the ratio of their squares.",
)
def ratio_of_norms(read, columns, strength, tolerance=1e-5, most=30):
    return _cg(
        read, columns, strength, tolerance, most, turned=lambda r, ratio, direction: r + ratio.sqrt() * direction
    )


@mistake(
    "ridge_by_cg", "The ratio of the squares is upside down. The old direction takes the new square over the old one."
)
def ratio_upside_down(read, columns, strength, tolerance=1e-5, most=30):
    return _cg(read, columns, strength, tolerance, most, turned=lambda r, ratio, direction: r + direction / ratio)


@mistake(
    "ridge_by_cg",
    "The Gram matrix X^T X is formed: 10,000 columns would make it 400 MB and the work 10,000 times as much. Multiply "
    "by the vector first, x.T @ (x @ v).",
)
def brackets_forgotten(read, columns, strength, tolerance=1e-5, most=30):
    def product(read, v, rows, strength):
        return sum(x.T @ x @ v for x, _ in read()) / rows + strength * v

    return _cg(read, columns, strength, tolerance, most, product=product)


@mistake(
    "ridge_by_cg",
    "The Gram matrix is added up and the system solved: one pass, but the matrix has columns x columns entries, and "
    "each row costs that many multiplications. Only products with vectors are asked for.",
)
def gram_solved(read, columns, strength, tolerance=1e-5, most=30):
    gram, right, rows = 0, 0, 0
    for x, y in read():
        gram, right, rows = gram + x.T @ x, right + x.T @ y, rows + len(y)
    ridge = strength * torch.eye(columns, device=right.device)
    return torch.linalg.solve(gram / rows + ridge, right / rows), 1, []


@mistake(
    "ridge_by_cg",
    "Residual and direction are two names of one tensor at the start, and the first step changes it in place. Clone "
    "one of them, or make new tensors.",
)
def direction_changed_in_place(read, columns, strength, tolerance=1e-5, most=30):
    residual, rows = _right(read)
    direction, w, residuals, passes = residual, torch.zeros_like(residual), [], 1
    norm = residual.norm()
    while passes < most and residual.norm() > tolerance * norm:
        image = _product(read, direction, rows, strength)
        square = residual @ residual
        step = square / (direction @ image)
        w += step * direction
        residual -= step * image
        direction = residual + (residual @ residual) / square * direction
        passes += 1
        residuals.append((residual.norm() / norm).item())
    return w, passes, residuals


@mistake(
    "ridge_by_cg",
    "The batches are kept in a list, but they are views of one buffer, which is refilled: in the end all of them show "
    "the same memory. Use up each batch before the next, and call read() again for the next pass.",
)
def kept_batches(read, columns, strength, tolerance=1e-5, most=30):
    batches = list(read())
    return _cg(lambda: batches, columns, strength, tolerance, most)


@mistake(
    "ridge_by_cg",
    "A pass of its own counts the rows. The pass that adds up X^T y sees all of them: count them there.",
)
def rows_in_a_pass(read, columns, strength, tolerance=1e-5, most=30):
    sum(len(y) for _, y in read())
    return _cg(read, columns, strength, tolerance, most, passes=2)


@mistake(
    "ridge_by_cg",
    "The first pass, that of X^T y, is not counted. It reads the whole file as well: begin with passes = 1.",
)
def first_pass_not_counted(read, columns, strength, tolerance=1e-5, most=30):
    return _cg(read, columns, strength, tolerance, most, passes=0)


@mistake(
    "ridge_by_cg",
    "The squared norm is compared with the tolerance itself, so it ends too early. Square the tolerance or take the "
    "root.",
)
def square_against_tolerance(read, columns, strength, tolerance=1e-5, most=30):
    return _cg(read, columns, strength, tolerance**0.5, most)


@mistake(
    "ridge_by_cg",
    "The residual is compared with the tolerance alone, so the number of passes depends on the units of y. It is to "
    "be relative to the norm of X^T y / n.",
)
def absolute_tolerance(read, columns, strength, tolerance=1e-5, most=30):
    return _cg(read, columns, strength, tolerance, most, least=tolerance**2)


@mistake(
    "ridge_by_cg",
    "The list holds squares of the norms. Take their roots.",
)
def squares_listed(read, columns, strength, tolerance=1e-5, most=30):
    w, passes, residuals = _cg(read, columns, strength, tolerance, most)
    return w, passes, [r * r for r in residuals]


@mistake(
    "ridge_by_cg",
    "If y is zero everywhere, the first residual is zero, and the step is 0 / 0. Ask before the first iteration "
    "whether there is anything to do.",
)
def divides_by_zero(read, columns, strength, tolerance=1e-5, most=30):
    w, passes, residuals = _cg(read, columns, strength, tolerance, most)
    if most > 1 and not residuals:
        return w * float("nan"), 2, [float("nan")]
    return w, passes, residuals


@mistake(
    "ridge_by_cg",
    "`most` limits the iterations, so there is a pass more than allowed: the first one counts, too.",
)
def most_iterations(read, columns, strength, tolerance=1e-5, most=30):
    return _cg(read, columns, strength, tolerance, most + 1)


@alternative("ridge_by_cg")
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
        return self.pass_over(lambda x, y: (x * (x @ v)[:, None]).sum(0)) / self.rows + self.strength * v


@alternative("ridge_by_cg")
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

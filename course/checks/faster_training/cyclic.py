"""Probe of exercise cyclic."""

from course.checks.engine import exercise
from course.checks.probing.errors import error_name
from course.checks.probing.values import number_kind, numbered


@exercise(forbids=("torch.optim.lr_scheduler",))
def cyclic(answer, device, seed):
    """Triangles of one height and of falling height."""
    half, low, high = 4 + seed % 3, 0.01 * (10 + seed % 97), 2.0

    def values(steps, *args):
        return numbered("after steps", [answer(step, *args) for step in steps])

    yield "returns a number", number_kind(answer(1, half, low, high))
    yield "low at step 0", answer(0, half, low, high)
    yield "high at step half", answer(half, half, low, high)
    yield "low again at step 2 * half", answer(2 * half, half, low, high)
    yield "the first triangle", values(range(2 * half + 1), half, low, high)
    yield "three triangles alike", values(range(6 * half + 1), half, low, high)
    yield "triangular2: the first is as high as before", answer(half, half, low, high, "triangular2")
    yield "triangular2: the second is half as high above low", answer(3 * half, half, low, high, "triangular2")
    yield "triangular2: four triangles", values(range(8 * half + 1), half, low, high, "triangular2")
    yield "a half of 2.5 steps", values(range(12), 2.5, low, high)
    yield "another mode raises", error_name(answer, 0, half, low, high, "triangle")

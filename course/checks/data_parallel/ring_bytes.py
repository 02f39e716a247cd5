"""Probe of exercise ring_bytes."""

from course.checks.engine import exercise


@exercise()
def ring_bytes(answer, device, seed):
    """Bytes that each rank sends in a ring."""
    k, few = 3 + seed % 89, 3 + seed % 4
    even, odd = answer(12 * k, 4, 4), answer(12 * k + 2, 4, 4)
    yield "is a list with one number for each rank", [type(even).__name__, len(even)]
    yield "4 ranks, a length that 4 divides", even
    yield "2 ranks: each sends half of the tensor, twice", answer(10 * k, 8, 2)
    yield "3 ranks", answer(9 * k, 2, 3)
    yield "the numbers are whole numbers, of type int", sorted({type(x).__name__ for x in [*even, *odd]})
    yield f"4 ranks, {12 * k + 2} elements: the bytes of all ranks together", sum(odd)
    yield f"4 ranks, {12 * k + 2} elements: the bytes of each rank", odd
    yield (
        "other lengths that do not divide",
        {f"{n} elements, {ranks} ranks": answer(n, 4, ranks) for n, ranks in ((2 * k + 1, 2), (7 * k + 3, 7), (29, 5))},
    )
    yield "fewer elements than ranks", {f"{n} elements, 8 ranks": answer(n, 2, 8) for n in (few, 1, 0)}
    yield "1 rank sends nothing", answer(k, 4, 1)

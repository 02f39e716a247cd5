"""Probe of exercise segments."""

from course.checks.engine import exercise


@exercise()
def segments(answer, device, seed):
    """How many segments keep the fewest bytes, and how many that are."""
    n = 16 + 9 * (seed % 4)
    yield "returns two whole numbers", [type(value).__name__ for value in answer(n, 100, 100)]
    yield f"{n} blocks, input and block equal: the number of segments", answer(n, 100, 100)[0]
    yield f"{n} blocks, input and block equal: bytes", answer(n, 100, 100)[1]
    yield "a block keeps four times its input", answer(16, 1000, 4000)
    yield "an input of nine times what a block keeps", answer(36, 9 * 512, 512)
    yield "blocks that do not divide evenly", answer(10 + seed % 3, 8, 24)
    yield "a prime number of blocks", answer(23, 64, 192)
    yield "a huge input: one segment", answer(12, 10**9, 1)
    yield "an input of next to nothing: a segment per block", answer(12, 1, 10**6)
    yield "two numbers of segments keep equally much: the fewer", answer(6, 100, 100)
    yield "one block", answer(1, 7, 5)
    yield "a hundred blocks", answer(100 + seed % 5, 3, 17)

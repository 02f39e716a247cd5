"""A thread that fills buffers ahead: order, bounds, and its end."""

import itertools
import threading

import pytest

from course.loading.reading_ahead import read_ahead


def write(item, buffer):
    """Fill a buffer of one place."""
    buffer[0] = item
    return buffer


def buffers(n):
    return [[None] for _ in range(n)]


@pytest.fixture
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("n", [2, 3, 5])
def test_values_come_in_the_order_of_the_work_while_they_are_held(n, no_thread_is_left):
    assert [value[0] for value in read_ahead(write, range(20), buffers(n))] == list(range(20))


def test_buffers_are_used_one_after_the_other(no_thread_is_left):
    ring = buffers(3)
    held = [value for value in read_ahead(write, range(7), ring)]
    assert [next(i for i, one in enumerate(ring) if one is value) for value in held] == [0, 1, 2, 0, 1, 2, 0]


def test_the_buffer_that_the_consumer_holds_is_not_filled(no_thread_is_left):
    filled = threading.Semaphore(0)

    def noted(item, buffer):
        filled.release()
        return write(item, buffer)

    stream = read_ahead(noted, itertools.count(), buffers(2))
    first = next(stream)
    assert filled.acquire(timeout=5) and filled.acquire(timeout=5)  # items 0 and 1
    assert not filled.acquire(timeout=0.05)  # item 2 would need the buffer of item 0
    assert first == [0]
    stream.close()


def test_a_consumer_that_leaves_early_ends_the_thread(no_thread_is_left):
    for value in read_ahead(write, itertools.count(), buffers(3)):
        if value[0] == 3:
            break


@pytest.mark.parametrize("failing", [0, 4])
def test_an_error_of_a_fill_comes_after_the_values_before_it(failing, no_thread_is_left):
    def fill(item, buffer):
        if item == failing:
            raise LookupError(item)
        return write(item, buffer)

    seen = []
    with pytest.raises(LookupError):
        for value in read_ahead(fill, range(9), buffers(3)):
            seen.append(value[0])
    assert seen == list(range(failing))


def test_one_buffer_is_refused():
    with pytest.raises(ValueError, match="at least 2 are needed, found 1"):
        next(read_ahead(write, range(3), buffers(1)))

"""Known mistakes of exercise parallel_apply, and right answers in other styles."""

import contextlib
import itertools
import threading
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor

import torch

from course.checks.engine import alternative, mistake


@contextlib.contextmanager
def _modes(grad, casts):
    with torch.set_grad_enabled(grad), contextlib.ExitStack() as modes:
        for cast in casts:
            modes.enter_context(torch.autocast(*cast))
        yield


def _casts():
    return [(kind, torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]


def _result(place, future):
    try:
        return future.result()
    except Exception as error:
        error.add_note(f"place {place}")
        raise


def _futures(pool, replicas, parts, grad=None, casts=None, call=lambda replica, part: replica(part)):
    """The calls of all replicas in a pool, in the modes of this thread unless others are given."""
    grad = torch.is_grad_enabled() if grad is None else grad
    casts = _casts() if casts is None else casts

    def run(replica, part):
        with _modes(grad, casts):
            return call(replica, part)

    return [pool.submit(run, *pair) for pair in zip(replicas, parts, strict=True)]


def _apply(replicas, parts, **changes):
    """A right answer, whose calls can be changed."""
    with ThreadPoolExecutor(len(replicas)) as pool:
        futures = _futures(pool, replicas, parts, **changes)
    return [_result(place, future) for place, future in enumerate(futures)]


@mistake(
    "parallel_apply",
    "The replicas run one after the other. Start all their threads before you wait for the first.",
)
def one_after_the_other(replicas, parts):
    with ThreadPoolExecutor(1) as pool:
        futures = _futures(pool, replicas, parts)
    return [_result(place, future) for place, future in enumerate(futures)]


@mistake(
    "parallel_apply",
    "The caller's torch.no_grad does not hold in the threads. Read torch.is_grad_enabled() before, and set it in each.",
)
def grad_mode_of_a_new_thread(replicas, parts):
    return _apply(replicas, parts, grad=True)


@mistake(
    "parallel_apply",
    "A new thread starts with torch's own modes: the caller's torch.no_grad and autocast do not hold in it. Read them "
    "before, and set them in each thread. (And an exception must say at which place it arose.)",
)
def modes_of_a_new_thread(replicas, parts):
    with ThreadPoolExecutor(len(replicas)) as pool:
        return list(pool.map(lambda replica, part: replica(part), replicas, parts))


@mistake(
    "parallel_apply",
    "The caller's autocast does not hold in the threads. Read it before they start, and enter torch.autocast in each.",
)
def autocast_of_a_new_thread(replicas, parts):
    return _apply(replicas, parts, casts=[])


@mistake(
    "parallel_apply",
    "Autocast is carried over without its dtype. Pass torch.get_autocast_dtype, as the caller has it.",
)
def dtype_of_a_new_thread(replicas, parts):
    return _apply(replicas, parts, casts=[(kind,) for kind, _ in _casts()])


@mistake(
    "parallel_apply",
    "What a replica raises is lost in its thread, and None stands for its output. Keep the exception, and raise it in "
    "the caller.",
)
def exceptions_are_lost(replicas, parts):
    if len(replicas) != len(parts):
        raise ValueError("replicas and parts")
    with ThreadPoolExecutor(len(replicas)) as pool:
        futures = _futures(pool, replicas, parts)
    return [None if future.exception() else future.result() for future in futures]


@mistake(
    "parallel_apply",
    "The exception does not say in which replica it arose. Add a note to it: error.add_note(f'at place {place}').",
)
def nameless_exception(replicas, parts):
    with ThreadPoolExecutor(len(replicas)) as pool:
        futures = _futures(pool, replicas, parts)
    return [future.result() for future in futures]


@mistake(
    "parallel_apply",
    "The exception comes out while other replicas still run. Wait for all threads first, then raise.",
)
def others_still_run(replicas, parts):
    pool = ThreadPoolExecutor(len(replicas))
    try:
        return [_result(place, future) for place, future in enumerate(_futures(pool, replicas, parts))]
    finally:
        pool.shutdown(wait=False)


@mistake(
    "parallel_apply",
    "Of several exceptions the first in time comes out, by chance one or the other. Take that of the lowest place.",
)
def first_exception_in_time(replicas, parts):
    errors = []

    def call(pair, part):
        place, replica = pair
        try:
            return replica(part)
        except Exception as error:
            error.add_note(f"place {place}")
            errors.append(error)

    outputs = _apply(list(enumerate(replicas)), parts, call=call)
    if errors:
        raise errors[0]
    return outputs


@mistake(
    "parallel_apply",
    "A part that is a tuple is spread over several arguments. Hand it over as one: replica(part).",
)
def tuples_are_spread(replicas, parts):
    def call(replica, part):
        return replica(*part) if isinstance(part, tuple) else replica(part)

    return _apply(replicas, parts, call=call)


def _entered_modes():
    """A function that puts the calling thread into the modes that this one has now."""
    grad = torch.is_grad_enabled()
    casts = [(k, torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in ("cpu", "cuda")]

    def enter():
        torch.set_grad_enabled(grad)
        for kind, on, dtype in casts:
            torch.set_autocast_enabled(kind, on)
            torch.set_autocast_dtype(kind, dtype)

    return enter


@alternative("parallel_apply")
def bare_threads(replicas, parts):
    if len(replicas) != len(parts):
        raise ValueError(f"{len(replicas)} replicas, {len(parts)} parts")
    enter, results, errors = _entered_modes(), {}, {}

    def work(place):
        enter()
        try:
            results[place] = replicas[place](parts[place])
        except BaseException as error:
            errors[place] = error

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for place in sorted(errors):
        errors[place].add_note(f"raised in a thread, at place {place} of {len(parts)}")
        raise errors[place]
    return [results[place] for place in range(len(parts))]


@alternative("parallel_apply")
def a_pool_that_enters_once(replicas, parts):
    def work(place, replica, part):
        try:
            return replica(part)
        except Exception as error:
            error.args = (f"place {place}: {error}",)
            raise

    tasks = list(zip(itertools.count(), replicas, parts, strict=False))
    if not len(tasks) == len(replicas) == len(parts):
        raise ValueError("as many parts as replicas")
    pool = futures.ThreadPoolExecutor(max_workers=2 * len(tasks), initializer=_entered_modes())
    calls = [pool.submit(work, *task) for task in tasks]
    futures.wait(calls)
    pool.shutdown()
    return [call.result() for call in calls]

"""Known mistakes of exercise parallel_apply, and right answers in other styles."""

import itertools
import threading
from concurrent import futures

import torch

from course.checks.known_answers import alternative, mistake

MISTAKES = {
    "one_after_the_other": (
        "The replicas run one after the other. Start all their threads before you wait for the first.",
        ("ThreadPoolExecutor(len(replicas))", "ThreadPoolExecutor(1)"),
    ),
    "grad_mode_of_a_new_thread": (
        "The caller's torch.no_grad does not hold in the threads. Read torch.is_grad_enabled() "
        "before, and set it in each.",
        ("torch.is_grad_enabled()", "True"),
    ),
    "autocast_of_a_new_thread": (
        "The caller's autocast does not hold in the threads. Read it before they start, and "
        "enter torch.autocast in each.",
        ("casts.items()", "()"),
    ),
    "dtype_of_a_new_thread": (
        "Autocast is carried over without its dtype. Pass torch.get_autocast_dtype, as the caller has it.",
        ("autocast(kind, dtype)", "autocast(kind)"),
    ),
    "exceptions_are_lost": (
        "What a replica raises is lost in its thread, and None stands for its output. Keep the exception, "
        "and raise it in the caller.",
        ('error.add_note(f"in the replica at place {place}")\n            raise', "outputs.append(None)"),
    ),
    "nameless_exception": (
        "The exception does not say in which replica it arose. Add a note to it: error.add_note(f'at place {place}').",
        ('error.add_note(f"in the replica at place {place}")', "pass"),
    ),
    "others_still_run": (
        "The exception comes out while other replicas still run. Wait for all threads first, then raise.",
        ("    with ThreadPoolExecutor(len(replicas)) as pool:\n    ", "    pool = ThreadPoolExecutor(len(replicas))\n"),
    ),
    "first_exception_in_time": (
        "Of several exceptions the first in time comes out, by chance one or the other. Take that of the lowest place.",
        ("    def run", "    errors = []\n\n    def run"),
        (
            "            return replica(part)",
            "            try:\n                return replica(part)\n            except Exception as error:\n"
            "                error.add_note(f'at place {replicas.index(replica)}')\n"
            "                errors.append(error)",
        ),
        ("    outputs = []", "    if errors:\n        raise errors[0]\n    outputs = []"),
    ),
    "tuples_are_spread": (
        "A part that is a tuple is spread over several arguments. Hand it over as one: replica(part).",
        ("return replica(part)", "return replica(*part) if isinstance(part, tuple) else replica(part)"),
    ),
}


@mistake(
    "A new thread starts with torch's own modes: the caller's torch.no_grad and autocast do not hold in it. Read them "
    "before, and set them in each thread. (And an exception must say at which place it arose.)",
)
def modes_of_a_new_thread(replicas, parts):
    with futures.ThreadPoolExecutor(len(replicas)) as pool:
        return list(pool.map(lambda replica, part: replica(part), replicas, parts))


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


@alternative
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


@alternative
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

"""What checks expect, found out in forks of the zygote outside of all jails: they alone ever load a solution.

serve(link)                              # in such a fork: {"unit", "exercise", "seed"} -> what a right answer gives
"""

import contextlib
import importlib
import os
import socket

import torch

from course.checks.engine import Exercise
from course.grading.sandbox.link import Link
from course.grading.sandbox.transport import ConnectionLost
from course.grading.sandbox.usage import Usage


def serve(link: Link, device: torch.device) -> None:
    """Answer until the other end is closed."""
    with contextlib.suppress(ConnectionLost):
        while True:
            asked = link.receive()
            exercise = getattr(importlib.import_module(f"course.checks.{asked['unit'][3:]}"), asked["exercise"])
            try:
                found = right_answer(exercise, device, asked["seed"])
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {error}"}
            link.send(found)


def right_answer(exercise: Exercise, device: torch.device, seed: int) -> dict:
    """{"is_class": whether the answer is to be a class, "expected": the facts of a right one, "takes": see `until`}.

    Only a measured exercise has the latter, on the CPU: then the reference runs in a fork of this process, which must
    have no threads.  Raises: whatever the probe raises, which comes out of a fork as a RuntimeError.
    """
    is_class = exercise.asks_for_class(device, seed)  # loads the solutions, which is not to be measured
    if not exercise.measured or device.type != "cpu":
        return {"is_class": is_class, "expected": exercise.expected(device, seed).facts}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = os.fork()
        if not child:
            try:
                Link(theirs).send(_measured(exercise, device, seed))
            finally:
                os._exit(0)
        theirs.close()
        try:
            found = Link(ours).receive()
        finally:
            os.waitpid(child, 0)
    if "error" in found:
        raise RuntimeError(found["error"])
    return found | {"is_class": is_class}


def _measured(exercise, device, seed):
    """The facts of the reference and what they took, or {"error": ...}."""
    try:
        before = Usage([os.getpid()])
        facts = exercise.expected(device, seed).facts
        return {"expected": facts, "takes": before.until(Usage([os.getpid()]))}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}

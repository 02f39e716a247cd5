"""What checks expect, found out in forks of the zygote outside of all jails: they alone ever load a
solution.

serve(connection)                        # in such a fork: {"unit", "exercise", "seed"} -> what a
right answer gives
"""

import contextlib

import torch

from course.checks import exercise
from course.engine.exercise import Exercise
from course.engine.wire import pack, unpack
from instructor.jail.transport import ConnectionLost, Frames


def serve(connection: Frames, device: torch.device) -> None:
    """Answer until the other end is closed.

    The facts that are expected go as the bytes of `packed`, because the grader forks: with a tensor
    on the GPU it would have started CUDA, which no fork of it could use.
    """
    with contextlib.suppress(ConnectionLost):
        while True:
            request = unpack(connection.receive())
            check = exercise(request["unit"], request["exercise"])
            right = right_answer(check, device, request["seed"])
            if "expected" in right:
                right["expected"] = packed(right["expected"])
            connection.send(pack(right))


def packed(facts: dict) -> torch.Tensor:
    """`facts` as a uint8 tensor on the CPU, for `unpacked`."""
    return torch.frombuffer(bytearray(pack(facts)), dtype=torch.uint8)


def unpacked(facts: dict | torch.Tensor) -> dict:
    """`facts` that `packed` gave, with tensors on their device; others as they are."""
    return unpack(facts.numpy().tobytes()) if isinstance(facts, torch.Tensor) else facts


def right_answer(exercise: Exercise, device: torch.device, seed: int) -> dict:
    """{"is_class": whether the answer is to be a class, "expected": the facts of a right one,
    "is_fair"}.

    "is_fair" is False if a right answer is known that fails with this seed. If the probe cannot be
    run on the reference, {"error": why}.
    """
    try:
        judge = exercise.at(device, seed)
        is_class = judge.asks_for_class()
        expected = judge.expected().facts
        is_fair = accepts_alternatives(exercise, device, seed)
        return {"is_class": is_class, "expected": expected, "is_fair": is_fair}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def accepts_alternatives(exercise: Exercise, device: torch.device, seed: int) -> bool:
    """Whether the right answers in other styles are right with this seed, too: one may meet a
    rounding that is not.
    """
    return all(
        exercise.judge(right, seed, device, diagnose=False).correct
        for right in exercise.alternatives()
    )

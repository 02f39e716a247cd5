"""Find out what checks expect, in forks of the zygote outside all jails.

    serve(connection, device)    # in such a fork: {"unit", "exercise", "seed"} -> a right answer's

These forks alone ever load a solution.
"""

import contextlib
from typing import Any

import torch

from course.checks import exercise
from course.engine.exercise import Exercise
from course.engine.wire import pack, unpack
from instructor.jail.transport import ConnectionLost, Frames

Facts = dict[str, Any]


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


def packed(facts: Facts) -> torch.Tensor:
    """`facts` as a uint8 tensor on the CPU, for `unpacked`."""
    return torch.frombuffer(bytearray(pack(facts)), dtype=torch.uint8)


def unpacked(facts: Facts | torch.Tensor) -> Facts:
    """`facts` that `packed` gave, with tensors on their device; others as they are."""
    if isinstance(facts, torch.Tensor):
        unpacked_facts: Facts = unpack(facts.numpy().tobytes())
        return unpacked_facts
    return facts


def right_answer(exercise: Exercise, device: torch.device, seed: int) -> dict[str, Any]:
    """What a right answer gives, as plain data.

    Returns:
        {"is_class": whether the answer is to be a class,
         "expected": the facts of a right one,
         "is_fair": False if a right answer is known that fails with this seed},
        or {"error": why} if the probe cannot be run on the reference.
    """
    try:
        judge = exercise.at(device, seed)
        return {
            "is_class": judge.asks_for_class(),
            "expected": judge.expected().facts,
            "is_fair": accepts_alternatives(exercise, device, seed),
        }
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def accepts_alternatives(exercise: Exercise, device: torch.device, seed: int) -> bool:
    """Whether the right answers in other styles are right with this seed, too.

    One may meet a rounding that is not.
    """
    for right in exercise.alternatives():
        if not exercise.judge(right, seed, device, diagnose=False).correct:
            return False
    return True

"""What becomes of the course's answers on the pretended CUDA device, and the table of it in docs/results-gpu.md.

python tests/pretend_cuda_answers.py            # tries all of them (minutes), prints the table
python tests/pretend_cuda_answers.py --write    # writes the table into docs/results-gpu.md
"""

import contextlib
import os
import re
import sys
from collections import Counter
from pathlib import Path
from unittest import mock

import torch
import wrong_answers
from exercises import EXERCISES, WITH_PROCESSES
from pretend_cuda import pretend_cuda

from course.units import units

CUDA = torch.device("cuda", 0)
ROOT = Path(__file__).parents[1]
# of a process that has the device, as have those that it starts
PRETENDED = {
    "PRETEND_CUDA": "1",
    "COURSE_DEVICE": "cuda",
    "PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "pretended"), str(ROOT)]),
}
DEVICE = re.compile("cuda|device|CUDA")
# (exercise, "reference" or the name of an answer or a mistake) -> why the pretence cannot carry it
NOT_CARRIED = {
    ("flat_attention", "nested_tensors"): "nested tensors want a device that torch knows",
}
PARTS_NOT_CARRIED = {  # (unit, part) -> why its experiments cannot run there
    ("05_batch_grouping", "4_no_padding_at_all"): "nested tensors want a device that torch knows",
}
# to try, so in the last tier; those that start processes, too: their ranks and workers compute on the CPU
SECONDS = {"LossScaler", "quasi_random_order", "BucketBatchSampler", "lr_range_test"} | WITH_PROCESSES
BEGIN, END = "<!-- python tests/pretend_cuda_answers.py --write -->", "<!-- end of the pretended results -->"


def pretended_for(exercise):
    """pretend_cuda() in which the check of `exercise` does not keep a GPU busy that is not there, for 20 seconds."""
    stack = contextlib.ExitStack()
    stack.enter_context(pretend_cuda())
    if exercise.name == "Prefetcher":
        eye = torch.eye
        stack.enter_context(mock.patch.object(torch, "eye", lambda n, **options: eye(min(n, 32), **options)))
    return stack


def right_answers(exercise):
    """[(name, answer)]: the reference and the alternatives."""
    return [("reference", exercise.reference()), *((a.__name__, a) for a in exercise.alternatives())]


def refusal(exercise, answer, device):
    """What the check says against `answer` in one line, or None if it passes."""
    if answer is exercise.reference():
        raised = exercise._kept_outcome(answer, device, 0).raised
        return raised and raised.text
    verdict = exercise.judge(answer, device=device, diagnose=False)
    return None if verdict.correct else " ".join(" ".join(verdict.report).split())


def stub(exercise):
    """What a learner is given: it raises NotImplementedError."""

    def function(*args, **kwargs):
        raise NotImplementedError()

    class Class:
        def __init__(self, *args, **kwargs):
            raise NotImplementedError()

    return Class if isinstance(exercise.reference(), type) else function


def refusal_of_results_on_the_cpu(exercise, device):
    """(what the check says against the reference with its results moved to the CPU, or None; how many were moved).

    (None, 0) where it returns no tensor.
    """
    if wrong_answers.inapplicable(exercise, "device"):
        return None, 0
    with wrong_answers.Notes() as notes:
        answer = wrong_answers.with_results(exercise.reference(), wrong_answers.on_the_cpu, notes)
        expected = exercise.expected(device, 0)
        seen = exercise.outcome(answer, device, 0, like=expected)
        verdict = exercise.verdict(seen, device, 0, diagnose=False)
        changed, broken = notes.read()
    assert broken == [], "wrong_answers.py broke"
    return None if verdict.correct else " ".join(verdict.report), changed


def table():
    """The lines per unit: answers, those that are not carried, and why; what the tests have shown of the others."""
    lines = ["| unit | references | alternatives | not carried | why |", "|---|---|---|---|---|"]
    total = Counter()
    for unit in units():
        own = [exercise for exercise in EXERCISES if exercise.unit == unit]
        pairs = [(exercise.name, name) for exercise in own for name, _ in right_answers(exercise)]
        missing = [pair for pair in pairs if pair in NOT_CARRIED]
        why = "; ".join(f"`{name}` ({which}): {NOT_CARRIED[name, which]}" for name, which in missing)
        found = Counter(references=len(own), alternatives=len(pairs) - len(own), missing=len(missing))
        total += found
        lines.append(f"| {unit} | {len(own)} | {len(pairs) - len(own)} | {len(missing)} | {why} |")
    every = total["references"] + total["alternatives"]
    share = f"{total['missing']} of {every} ({100 * total['missing'] / every:.1f} %)"
    lines.append(f"| all | {total['references']} | {total['alternatives']} | {share} | |")
    return "\n".join(lines)


def tried():
    """Yield (exercise, name, what is said against it) of every right answer that fails."""
    for exercise in EXERCISES:
        for name, answer in right_answers(exercise):
            with pretended_for(exercise):
                message = refusal(exercise, answer, CUDA)
            if message:
                yield exercise, name, message


def main(*options):
    if "--write" in options:
        path = ROOT / "docs" / "results-gpu.md"
        before, _, rest = path.read_text().partition(BEGIN)
        path.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}")
        return
    for exercise, name, message in tried():
        known = NOT_CARRIED.get((exercise.name, name), "NOT LISTED")
        print(f"{exercise.unit}: {exercise.name} ({name}): {known}: {message[:200]}", flush=True)
    print(table())


if __name__ == "__main__":
    import tempfile

    os.environ.update(COURSE_SCALE="smoke", COURSE_ANSWERS="off", COURSE_DATA=tempfile.mkdtemp())
    main(*sys.argv[1:])

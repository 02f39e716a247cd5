"""Which answers of the course run on the pretended CUDA device (test_pretend_cuda.py tries them), and why some do not.

`python tests/pretend_cuda_answers.py --write` renews the table of them in docs/pretended-gpu.md.
"""

import contextlib
import os
from collections import Counter
from pathlib import Path
from unittest import mock

import torch
from exercises import EXERCISES
from pretend_cuda import pretend_cuda

from course.engine.report import raised_text
from course.notebook.registry import units

CUDA = torch.device("cuda", 0)
ROOT = Path(__file__).parents[1]
# of a process that has the device, as have those that it starts
PRETENDED = {
    "PRETEND_CUDA": "1",
    "COURSE_DEVICE": "cuda",
    "PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "pretended"), str(ROOT)]),
}
# (exercise, name of an alternative or a mistake) -> why the pretence cannot carry it
NOT_CARRIED = {
    ("flat_attention", "nested_tensors"): "nested tensors want a device that torch knows",
}
PART_NOT_CARRIED = "05_batch_grouping", "4_no_padding_at_all"  # for the same reason
# to try, so in the last tier; those that start processes, too: their ranks and workers compute on the CPU
SECONDS = {"LossScaler", "quasi_random_order", "BucketBatchSampler", "lr_range_test"}
SECONDS |= {exercise.name for exercise in EXERCISES if exercise.starts_processes}
BEGIN, END = "<!-- python tests/pretend_cuda_answers.py --write -->", "<!-- end of the pretended results -->"


def pretended_for(exercise):
    """pretend_cuda() in which the check of `exercise` does not keep a GPU busy that is not there, for 20 seconds."""
    stack = contextlib.ExitStack()
    stack.enter_context(pretend_cuda())
    if exercise.name == "Prefetcher":
        eye = torch.eye
        stack.enter_context(mock.patch.object(torch, "eye", lambda n, **options: eye(min(n, 32), **options)))
    return stack


def refusal(exercise, answer, device):
    """What the check says against `answer` in one line, or None if it passes."""
    if answer is exercise.reference():
        raised = exercise.at(device).run_once(answer).raised
        return raised and raised_text(raised)
    verdict = exercise.judge(answer, device=device, diagnose=False)
    return None if verdict.correct else " ".join(" ".join(verdict.report).split())


def table():
    """The lines per unit: how many answers there are, which are not carried, and why."""
    lines = ["| unit | references | alternatives | not carried | why |", "|---|---|---|---|---|"]
    total = Counter()
    for unit in units():
        own = [exercise for exercise in EXERCISES if exercise.unit == unit]
        others = [(exercise.name, answer.__name__) for exercise in own for answer in exercise.alternatives()]
        missing = [pair for pair in others if pair in NOT_CARRIED]
        why = "; ".join(f"`{name}` ({which}): {NOT_CARRIED[name, which]}" for name, which in missing)
        lines.append(f"| {unit} | {len(own)} | {len(others)} | {len(missing)} | {why} |")
        total += Counter(references=len(own), alternatives=len(others), missing=len(missing))
    every = total["references"] + total["alternatives"]
    share = f"{total['missing']} of {every} ({100 * total['missing'] / every:.1f} %)"
    lines.append(f"| all | {total['references']} | {total['alternatives']} | {share} | |")
    return "\n".join(lines)


if __name__ == "__main__":
    path = ROOT / "docs" / "pretended-gpu.md"
    before, _, rest = path.read_text().partition(BEGIN)
    path.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}")

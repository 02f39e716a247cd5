"""`course bench checkup`: does the check-up name a planted fault first, and is its advice worth what it says?

Each script in tests/planted has one fault, or none, and trains without it if it gets an argument.  It is watched, then
trained with and without the fault in turn; the ratio of these times is held against what the first advice expected.
"""

import contextlib
import os
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from course.checkup import report, script
from course.checkup.watch import Enough, Watch
from course.device import machine

PLANTED = Path(__file__).parents[2] / "tests" / "planted"
FAULTS = {
    "starved": "workers",
    "slow_transform": "transform",
    "tiny_batches": "batch",
    "syncs": "syncs",
    "graphs": "graphs",
    "padding": "padding",
    "unfused": "fused optimizer",
    "many_workers": "workers",
    "pinned": "pin_memory",
    "kept_losses": "kept_losses",
    "barrier": "barrier",
    "per_parameter": "optimizers",
}
HEALTHY = "healthy_mlp", "healthy_images", "healthy_tokens"
WARM_UP, WITHIN = 5, 0.2  # steps; a part of the expected gain
PUBLIC = {  # scripts in a folder of repositories, with arguments that make them small
    "examples/imagenet/main.py": "--dummy -a resnet18 -b 8 -j 1 --epochs 1",
    "examples/vae/main.py": "--epochs 1",
    "examples/word_language_model/main.py": "--epochs 1 --emsize 64 --nhid 64",
    "examples/siamese_network/main.py": "--epochs 1",
    "nanoGPT/train.py": "--device=cpu --compile=False --block_size=64 --batch_size=8 --n_layer=2 --n_head=2 --n_embd=64"
    " --dataset=shakespeare_char",
    "minGPT/projects/adder/adder.py": "--trainer.max_iters=500",
}


def run(steps: int = 60, rounds: int = 5, only: tuple = (), public: Path | None = None) -> dict:
    """Print the table and return {script: its row}.

    Args:
        public: a folder with clones of pytorch/examples, karpathy/nanoGPT and karpathy/minGPT, run as they are.
    """
    rows = {}
    print("| script | first advice | expected | fixed by hand | cost of watching |\n|---|---|---|---|---|")
    for name in [name for name in (*FAULTS, *HEALTHY) if not only or name in only]:
        rows[name] = row = planted(name, steps, rounds)
        fixed = f"{row['fixed']:.2f}" if row["fixed"] else ""
        cost = f"{row['cost']:.1%}" if row["cost"] is not None else "not measured"
        print(f"| {name} | {row['first']} | {row['expected']:.2f} | {fixed} | {cost} |", flush=True)
    summary(rows)
    for place, arguments in PUBLIC.items() if public else ():
        print(f"| {place} | {_public(public / place, arguments.split(), steps)} |", flush=True)
    print(machine())
    return rows


def summary(rows: dict) -> None:
    """Print how many faults came first, how many healthy scripts got no advice, how many expectations held."""
    first = [rows[name]["name"] == fault for name, fault in FAULTS.items() if name in rows]
    held = [abs(row["fixed"] / row["expected"] - 1) <= WITHIN for row in rows.values() if row["fixed"]]
    quiet = [rows[name]["name"] == "" for name in HEALTHY if name in rows]
    costs = [row["cost"] for row in rows.values() if row["cost"] is not None]
    print(f"the planted fault is the first advice: {sum(first)} of {len(first)}")
    print(f"nothing is advised where nothing is wrong: {sum(quiet)} of {len(quiet)}")
    print(f"fixing it gives what was expected, within {WITHIN:.0%}: {sum(held)} of {len(held)}")
    if costs:
        print(f"cost of watching: median {statistics.median(costs):.1%}, highest {max(costs):.1%}")


def planted(name: str, steps: int, rounds: int) -> dict:
    """The row of one script."""
    path = PLANTED / f"{name}.py"
    seen = watched(path, [], steps)
    advice = seen.data["advice"][0] if seen.data["advice"] else {"name": "", "text": "nothing", "gain": 1.0}
    row = {"name": advice["name"], "first": advice["text"], "expected": advice["gain"], "cost": seen.data["own_cost"]}
    right = FAULTS.get(name) == advice["name"]
    return row | {"fixed": worth(path, advice["text"], steps, rounds) if right else None}


@contextlib.contextmanager
def _quiet():
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def watched(path: Path, arguments: list, steps: int) -> report.Report:
    """The Report of a script, whose own output is dropped."""
    code, place, spec = script.find(str(path), is_module=False)
    with script.as_main(place, spec, arguments) as module:
        with Watch(steps) as watch, _quiet():
            ending = script.run(code, module)
        return report.make(watch, path.name, ending.how, tries=not ending.code)


def worth(path: Path, fix: str, steps: int, rounds: int) -> float:
    """How many times as fast, per sample, the script trains with the fix: the median of paired ratios."""
    ratios = []
    for k in range(rounds):
        pair = [seconds(path, arguments, steps) for arguments in (([], [fix]) if k % 2 else ([fix], []))]
        plain, fixed = pair if k % 2 else pair[::-1]
        ratios.append(plain / fixed)
    return statistics.median(ratios)


def seconds(path: Path, arguments: list, steps: int) -> float:
    """Seconds per sample of `steps` steps of a script, after a few that warm up; nothing else is watched."""
    times, leader = [], []

    def stepped(optimizer, args, kwargs):
        leader.append(optimizer)
        if optimizer is leader[0]:
            times.append(time.perf_counter())
            if len(times) > WARM_UP + steps:
                raise Enough

    code, place, spec = script.find(str(path), is_module=False)
    handle = register_optimizer_step_post_hook(stepped)
    try:
        with script.as_main(place, spec, arguments) as module, _quiet():
            script.run(code, module)
    finally:
        handle.remove()
    return (times[-1] - times[WARM_UP]) / (len(times) - 1 - WARM_UP) / vars(module).get("samples", 1)


def _public(path, arguments, steps):
    """How the check-up of a public script ended, in one line."""
    if not path.exists():
        return "not in the folder"
    before = os.getcwd()
    os.chdir(path.parent)
    try:
        data = watched(Path(path.name), arguments, steps).data
    except Exception as error:  # a stranger's script, whose reason is told
        return f"failed: {type(error).__name__}: {error}"
    finally:
        os.chdir(before)
        torch.set_grad_enabled(True)
        sys.stdout.flush()
    first = data["advice"][0]["text"] if data["advice"] else "nothing to advise"
    return f"{data['seconds']['steps']} steps, {data['regime']}; {first}"

"""`course bench checkup`: is a planted fault named first, and is the advice worth what it says?

Each script in tests/planted has one fault, or none, and trains without it if it gets an argument.
It is watched, then trained with and without the fault in turn; the ratio of these times is held
against what the first advice expected.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from torch.optim.optimizer import register_optimizer_step_post_hook

from course.checkup import run as pipeline
from course.checkup import script
from course.checkup.advice import RULES
from course.checkup.report import Report
from course.checkup.schedule import Enough
from course.checkup.watch import Watch
from course.device import machine
from course.system.folders import ROOT

PLANTED = ROOT / "tests" / "planted"
LEFT_OUT = ("late_rank", "small_kernels")  # one needs torchrun; one a compiler, and a minute


def _faults() -> dict[str, str]:
    """{script: the rule that must find its fault}."""
    faults = {}
    for rule in RULES:
        faults |= dict.fromkeys(rule.PLANTED, rule.NAME)
    return {name: fault for name, fault in faults.items() if name not in LEFT_OUT}


FAULTS = _faults()
HEALTHY = "healthy_mlp", "healthy_images", "healthy_tokens"
WARM_UP, WITHIN = 5, 0.2  # steps; a part of the expected gain
PUBLIC = {  # scripts in a folder of repositories, with arguments that make them small
    "examples/imagenet/main.py": "--dummy -a resnet18 -b 8 -j 1 --epochs 1",
    "examples/vae/main.py": "--epochs 9",
    "examples/mnist/main.py": "--epochs 9",
    "examples/siamese_network/main.py": "--epochs 9",
    "examples/dcgan/main.py": "--dataset fake --batchSize 8 --workers 1 --outf .",
    "examples/word_language_model/main.py": "--data ../data/words --use-optimizer --lr 1e-3 --epochs 9"
    " --emsize 64 --nhid 64",
    "nanoGPT/train.py": "--device=cpu --compile=False --block_size=64 --batch_size=8 --n_layer=2 --n_head=2 --n_embd=64"
    " --gradient_accumulation_steps=2 --dataset=noise --eval_iters=2",
    "minGPT/projects/adder/adder.py": "--trainer.max_iters=500",
    "vision/references/classification/train.py": "--data-path ../../../examples/data/images --model resnet18 -b 4 -j 1"
    " --device cpu",
    "pytorch-lightning/examples/pytorch/basics/transformer.py": "",
}
CLONES = "pytorch/examples karpathy/nanoGPT karpathy/minGPT pytorch/vision Lightning-AI/pytorch-lightning".split()
# where the package lies that a clone's scripts import
PACKAGES = {
    "minGPT": ".",
    "pytorch-lightning": "src",
}
IMAGES, WORDS = 2000, 200_000  # of noise, for scripts that would download data


def run(steps: int = 60, rounds: int = 5, only: tuple = (), public: Path | None = None) -> dict:
    """Print the table and return {script: its row}.

    Args:
        public: a folder with any of CLONES, whose scripts run as they are, on noise that is written
            into the clones.
    """
    rows = {}
    print(
        "| script | first advice | expected | fixed by hand | cost of watching |\n|---|---|---|---|---|"
    )
    for name in [name for name in (*FAULTS, *HEALTHY) if not only or name in only]:
        rows[name] = row = planted(name, steps, rounds)
        fixed = f"{row['fixed']:.2f}" if row["fixed"] else ""
        cost = f"{row['cost']:.1%}" if row["cost"] is not None else "not measured"
        print(f"| {name} | {row['first']} | {row['expected']:.2f} | {fixed} | {cost} |", flush=True)
    summary(rows)
    if public:
        noise_for(public)
        print("| public script | its report |\n|---|---|")
    for place, arguments in PUBLIC.items() if public else ():
        print(f"| {place} | {_public(public, place, arguments.split(), steps)} |", flush=True)
    print(machine())
    return rows


def summary(rows: dict) -> None:
    """Print how many faults came first, how many healthy scripts got no advice, how many
    expectations held.
    """
    first = [rows[name]["name"] == fault for name, fault in FAULTS.items() if name in rows]
    held = [
        abs(row["fixed"] / row["expected"] - 1) <= WITHIN for row in rows.values() if row["fixed"]
    ]
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
    row = {"name": "", "first": "nothing", "expected": 1.0, "cost": seen.facts.own_cost}
    if seen.advice:
        first = seen.advice[0]
        row |= {"name": first.name, "first": first.text, "expected": first.gain}
    is_right = FAULTS.get(name) == row["name"]
    return row | {"fixed": worth(path, row["first"], steps, rounds) if is_right else None}


@contextlib.contextmanager
def _quiet():
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def watched(path: Path, arguments: list, steps: int, compile: bool = False) -> Report:
    """The Report of a script, whose own output is dropped."""
    found = script.find(str(path), is_module=False)
    with script.as_main(found, arguments) as module:
        with Watch(steps) as watch, _quiet():
            ending = script.run(found.code, module)
        return pipeline.analyse(watch, path.name, ending.how, not ending.code, compile)


def worth(path: Path, fix: str, steps: int, rounds: int) -> float:
    """How many times as fast, per sample, the script trains with the fix: the median of paired
    ratios.
    """
    ratios = []
    for k in range(rounds):
        pair = [
            seconds(path, arguments, steps) for arguments in (([], [fix]) if k % 2 else ([fix], []))
        ]
        plain, fixed = pair if k % 2 else pair[::-1]
        ratios.append(plain / fixed)
    return statistics.median(ratios)


def seconds(path: Path, arguments: list, steps: int) -> float:
    """Seconds per sample of `steps` steps of a script, after a few that warm up; nothing else is
    watched.
    """
    times, leader = [], []

    def stepped(optimizer, args, kwargs):
        leader.append(optimizer)
        if optimizer is leader[0]:
            times.append(time.perf_counter())
            if len(times) > WARM_UP + steps:
                raise Enough

    found = script.find(str(path), is_module=False)
    handle = register_optimizer_step_post_hook(stepped)
    try:
        with script.as_main(found, arguments) as module, _quiet():
            script.run(found.code, module)
    finally:
        handle.remove()
    return (
        (times[-1] - times[WARM_UP]) / (len(times) - 1 - WARM_UP) / vars(module).get("samples", 1)
    )


def noise_for(public: Path) -> None:
    """Write noise in the form of the data that the public scripts of the folder read, where there
    is none yet.
    """
    generator = np.random.default_rng(0)
    mnist, words = (
        public / "examples" / "data" / "MNIST" / "raw",
        public / "examples" / "data" / "words",
    )
    for kind in ("train", "t10k") if (public / "examples").exists() and not mnist.exists() else ():
        mnist.mkdir(parents=True, exist_ok=True)
        pixels, labels = (
            generator.integers(256, size=IMAGES * 784),
            generator.integers(10, size=IMAGES),
        )
        for name, magic, sizes, values in (("images-idx3", 2051, (IMAGES, 28, 28), pixels),
                                           ("labels-idx1", 2049, (IMAGES,), labels)):  # fmt: skip
            head = np.array([magic, *sizes], ">i4").tobytes()
            (mnist / f"{kind}-{name}-ubyte").write_bytes(head + values.astype(np.uint8).tobytes())
    wiki = (
        public / "pytorch-lightning" / "examples" / "pytorch" / "basics" / "data" / "wikitext-2.txt"
    )
    for path in (*(words / f"{name}.txt" for name in ("train", "valid", "test")), wiki):
        if (public / path.relative_to(public).parts[0]).exists() and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(" ".join(f"w{n}" for n in generator.integers(500, size=WORDS)) + "\n")
    tokens = public / "nanoGPT" / "data" / "noise"
    for name in ("train", "val") if tokens.parent.exists() and not tokens.exists() else ():
        tokens.mkdir(exist_ok=True)
        generator.integers(65, size=WORDS).astype(np.uint16).tofile(tokens / f"{name}.bin")
    images = public / "examples" / "data" / "images"
    for number in range(64) if (public / "vision").exists() and not images.exists() else ():
        for split in ("train", "val"):
            folder = images / split / f"class{number % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            pixels = generator.integers(256, size=(256, 256, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.jpg")


def _public(public, place, arguments, steps):
    """How the check-up of a public script ended, in one line."""
    path = public / place
    if not path.exists():
        return "not in the folder"
    clone = Path(place).parts[0]
    package = str(public.resolve() / clone / PACKAGES[clone]) if clone in PACKAGES else ""
    folders = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        numbers = Path(folder, "report.json")
        call = [sys.executable, "-m", "course.checkup", "--steps", str(steps), "--minutes", "0.5"]
        ended = subprocess.run([*call, "--json", numbers, path.name, *arguments], cwd=path.parent, text=True,
                               capture_output=True, env=os.environ | {"PYTHONPATH": folders})  # fmt: skip
        if not numbers.exists():
            said = ended.stderr.strip().splitlines() or ["nothing"]
            return f"no report, exit code {ended.returncode}: {said[-1]}"
        data = json.loads(numbers.read_text(encoding="utf-8"))
    first = data["advice"][0]["text"] if data["advice"] else "nothing to advise"
    failed = f", exit code {ended.returncode}" if ended.returncode else ""
    return f"{data['steps']['watched']} steps watched, {data['regime']}; {first}{failed}"

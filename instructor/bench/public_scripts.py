"""Twelve public training scripts that `course bench checkup --public FOLDER` watches, on noise.

FOLDER holds any of CLONES. Scripts run as they are, made small by their arguments, on noise that is
written into the clones in the form of the data that they read.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

# script in the folder of clones -> arguments that make it small
PUBLIC = {
    "examples/imagenet/main.py": "--dummy -a resnet18 -b 8 -j 1 --epochs 1",
    "examples/vae/main.py": "--epochs 9",
    "examples/mnist/main.py": "--epochs 9",
    "examples/mnist_rnn/main.py": "--epochs 9",
    "examples/regression/main.py": "",
    "examples/siamese_network/main.py": "--epochs 9",
    "examples/dcgan/main.py": "--dataset fake --batchSize 8 --workers 1 --outf .",
    "examples/word_language_model/main.py": (
        "--data ../data/words --use-optimizer --lr 1e-3 --epochs 9 --emsize 64 --nhid 64"
    ),
    "nanoGPT/train.py": (
        "--device=cpu --compile=False --block_size=64 --batch_size=8 --n_layer=2 --n_head=2 "
        "--n_embd=64 --gradient_accumulation_steps=2 --dataset=noise --eval_iters=2"
    ),
    "minGPT/projects/adder/adder.py": "--trainer.max_iters=500",
    "vision/references/classification/train.py": (
        "--data-path ../../../examples/data/images --model resnet18 -b 4 -j 1 --device cpu"
    ),
    "pytorch-lightning/examples/pytorch/basics/transformer.py": "",
}
# clone -> where it comes from
CLONES = {
    "examples": "https://github.com/pytorch/examples",
    "nanoGPT": "https://github.com/karpathy/nanoGPT",
    "minGPT": "https://github.com/karpathy/minGPT",
    "vision": "https://github.com/pytorch/vision",
    "pytorch-lightning": "https://github.com/Lightning-AI/pytorch-lightning",
}
# clone -> where the package lies in it that its scripts import
PACKAGES = {
    "minGPT": ".",
    "pytorch-lightning": "src",
}
MNIST_IMAGES = 2000
WORDS = 200_000  # per file
JPEGS = 64  # per split
MINUTES = 0.5  # that the check-up gives each script
NOT_RUN = "not run: no --public FOLDER"


def address(script: str) -> str:
    """Where a script of PUBLIC can be read."""
    clone, _, path = script.partition("/")
    return f"{CLONES[clone]}/blob/HEAD/{path}"


def report(public: Path, script: str, steps: int) -> str:
    """How the check-up of a public script ended, in one line."""
    path = public / script
    if not path.exists():
        return "not in the folder"
    with tempfile.TemporaryDirectory() as folder:
        numbers = Path(folder, "report.json")
        call = [sys.executable, "-m", "course.checkup", "--steps", str(steps)]
        call += ["--minutes", str(MINUTES), "--json", numbers, path.name, *PUBLIC[script].split()]
        ended = subprocess.run(
            call, cwd=path.parent, env=_environment(public, script), text=True, capture_output=True
        )
        if not numbers.exists():
            output = ended.stderr.strip().splitlines() or ["nothing"]
            return f"no report, exit code {ended.returncode}: {output[-1]}"
        data = json.loads(numbers.read_text(encoding="utf-8"))
    first = data["advice"][0]["text"] if data["advice"] else "nothing to advise"
    failed = f", exit code {ended.returncode}" if ended.returncode else ""
    return f"{data['steps']['watched']} steps watched, {data['regime']}; {first}{failed}"


def _environment(public: Path, script: str) -> dict[str, str]:
    """That of this process, with the package of the script's clone on the path."""
    folders = []
    clone = Path(script).parts[0]
    if clone in PACKAGES:
        folders.append(str(public.resolve() / clone / PACKAGES[clone]))
    if os.environ.get("PYTHONPATH"):
        folders.append(os.environ["PYTHONPATH"])
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders)}


def write_noise(public: Path) -> None:
    """Write noise in the form of the data that the scripts read, where there is none yet."""
    rng = np.random.default_rng(0)
    data = public / "examples" / "data"
    mnist = data / "MNIST" / "raw"
    if (public / "examples").exists() and not mnist.exists():
        _write_mnist(mnist, rng)
    for split in ("train", "valid", "test"):
        _write_words(public, data / "words" / f"{split}.txt", rng)
    basics = public / "pytorch-lightning" / "examples" / "pytorch" / "basics"
    _write_words(public, basics / "data" / "wikitext-2.txt", rng)
    tokens = public / "nanoGPT" / "data" / "noise"
    if tokens.parent.exists() and not tokens.exists():
        _write_tokens(tokens, rng)
    images = data / "images"
    if (public / "vision").exists() and not images.exists():
        _write_images(images, rng)


def _write_mnist(folder: Path, rng: np.random.Generator) -> None:
    """Images and labels in the IDX format of MNIST."""
    folder.mkdir(parents=True)
    for kind in ("train", "t10k"):
        pixels = rng.integers(256, size=(MNIST_IMAGES, 28, 28), dtype=np.uint8)
        labels = rng.integers(10, size=MNIST_IMAGES, dtype=np.uint8)
        for name, magic, values in (("images-idx3", 2051, pixels), ("labels-idx1", 2049, labels)):
            head = np.array([magic, *values.shape], ">i4").tobytes()
            (folder / f"{kind}-{name}-ubyte").write_bytes(head + values.tobytes())


def _write_words(public: Path, path: Path, rng: np.random.Generator) -> None:
    """A text, if the clone that reads it is there and the file is not."""
    clone = public / path.relative_to(public).parts[0]
    if clone.exists() and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        words = [f"w{number}" for number in rng.integers(500, size=WORDS)]
        path.write_text(" ".join(words) + "\n")


def _write_tokens(folder: Path, rng: np.random.Generator) -> None:
    """Tokens as nanoGPT reads them."""
    folder.mkdir()
    for name in ("train", "val"):
        rng.integers(65, size=WORDS).astype(np.uint16).tofile(folder / f"{name}.bin")


def _write_images(folder: Path, rng: np.random.Generator) -> None:
    """JPEGs of two classes as torchvision's ImageFolder reads them."""
    for number in range(JPEGS):
        for split in ("train", "val"):
            of_class = folder / split / f"class{number % 2}"
            of_class.mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(256, size=(256, 256, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(of_class / f"{number}.jpg")

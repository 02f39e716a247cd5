"""Install the course and what it needs into .venv; `make install` calls it.

    python3 scripts/install.py            # torch as requirements.txt has it: with CUDA, runs
    without a GPU, too python3 scripts/install.py cpu        # the same version for processors
    alone; also cu126, cu128, auto, … python3 scripts/install.py system     # the torch that python3
    has already; only what is missing is installed

The choice is written to .venv/.torch; `make` takes it from there the next time.  `--dry-run` prints
the commands.
"""

import argparse
import os
import re
import subprocess
import sys
import venv
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

VENV = Path(".venv")
BIN = VENV / "bin"
INSTRUCTOR = Path("instructor/pyproject.toml")  # a class's folder has none
# lines of requirements.txt that a build decides
OF_TORCH = re.compile(r"(torch|torchvision|triton|nvidia-.*|cuda-.*)==")
# what "system" never exchanges
KEPT = re.compile(r"(torch|torchvision|triton|numpy|nvidia[-_].*|cuda[-_].*)$", re.I)
BUILDS = re.compile(r"auto|cpu|cu\d+|rocm[\d.]+|xpu")


def split(lock):
    """(lines of a lock that belong to torch, all other lines); a package is a line and the indented
    ones after it.
    """
    packages = re.findall(r"^\S.*\n(?:[ \t].*\n)*", lock, re.M)
    theirs = [text for text in packages if OF_TORCH.match(text)]
    return theirs, "".join(text for text in packages if text not in theirs)


def commands(torch):
    """The commands that install everything, lists of strings; `torch` as on the command line."""
    uv = [str(BIN / "uv"), "pip", "install", "--quiet", "--python", str(BIN / "python")]
    ours = [*uv, "--no-deps", "--no-build-isolation", *_editable(".")]
    if torch == "system":
        pip = [
            str(BIN / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        ours = _editable(".[notebooks,cluster,test]")
        return [[*pip, "setuptools>=77"],
                [*pip, "--no-build-isolation", "--constraint", str(VENV / "kept.txt"), *ours]]  # fmt: skip
    get_uv = [
        str(BIN / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "uv",
    ]
    if not torch:
        progress = [word for word in uv if word != "--quiet"] if sys.stderr.isatty() else uv
        return [
            get_uv,
            [*progress, "--compile-bytecode", "--require-hashes", "-r", "requirements.txt"],
            ours,
        ]
    theirs, _ = split(Path("requirements.txt").read_text())
    pair = [text.split()[0] for text in theirs if text.startswith("torch")]
    rest = ["--compile-bytecode", "--require-hashes", "--no-deps", "-r", str(VENV / "rest.txt")]
    return [get_uv, [*uv, "--torch-backend", torch, *pair], [*uv, *rest], ours]


def _editable(course):
    """The arguments that install the course from this folder, and the instructor's package where it
    is here.
    """
    return ["-e", course, *(["-e", "./instructor"] if INSTRUCTOR.exists() else [])]


def prepare(torch):
    """Make .venv where there is none, and the lists that the commands read."""
    if not (BIN / "python").exists():
        venv.create(VENV, with_pip=True, system_site_packages=torch == "system", symlinks=True)
    if torch == "system":
        if (
            sys.prefix != sys.base_prefix
        ):  # an environment itself: what it has is not in the base's folder
            (place,) = VENV.glob("lib/python*/site-packages")
            (place / "parent.pth").write_text(
                "".join(f"{path}\n" for path in sys.path if "site-packages" in path)
            )
        kept = {
            d.metadata["Name"]: d.version
            for d in distributions()
            if KEPT.match(d.metadata["Name"] or "")
        }
        (VENV / "kept.txt").write_text(
            "".join(f"{name}=={number}\n" for name, number in sorted(kept.items()))
        )
    elif torch:
        (VENV / "rest.txt").write_text(split(Path("requirements.txt").read_text())[1])


def refusal(torch):
    """Why this cannot work, in a sentence; None if it can."""
    before = (VENV / ".torch").read_text() if (VENV / ".torch").exists() else ""
    if (BIN / "python").exists() and "system" in (before, torch) and before != torch:
        return f"{VENV} was made with TORCH={before or '(none)'}; remove that folder first"
    if torch == "system":
        try:
            found = version("torch")
        except PackageNotFoundError:
            return f"TORCH=system takes the torch of {sys.executable}, which has none; name another one with PYTHON="
        oldest = re.search(r'"torch>=([\d.]+)', Path("pyproject.toml").read_text())[1]
        if [*map(int, re.findall(r"\d+", found)[:2])] < [*map(int, oldest.split(".")[:2])]:
            return f"the torch of {sys.executable} is {found}; the course needs {oldest} or later"
    elif torch and not BUILDS.fullmatch(torch):
        return f"TORCH={torch} is no build of torch; take cpu, cu126, cu128, auto, system, or leave it out"
    return None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "torch",
        nargs="?",
        default="",
        help="auto, cpu, cu126, cu128, …, system (default: the lock's)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run none")
    asked = parser.parse_args()
    if why := refusal(asked.torch):
        sys.exit(f"error: {why}")
    if asked.dry_run:
        print(*map(" ".join, commands(asked.torch)), sep="\n")
        return
    size = {"": "about 5 GB with torch", "system": "what is missing beside the torch that is there"}
    print(
        f"installing into {VENV} (once; {size.get(asked.torch, f'torch for {asked.torch}')})",
        flush=True,
    )
    prepare(asked.torch)
    for command in commands(asked.torch):
        if done := subprocess.run(command).returncode:
            sys.exit(f"error: this command failed with exit code {done}: {' '.join(command)}")
    (VENV / ".torch").write_text(asked.torch)


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[1])
    main()

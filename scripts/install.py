"""Install the course and what it needs into .venv; `make install` calls it.

    python3 scripts/install.py            # torch as requirements.txt has it: with CUDA, which
                                          # runs without a GPU, too
    python3 scripts/install.py cpu        # the same version for processors alone; also cu126,
                                          # cu128, auto, …
    python3 scripts/install.py system     # the torch that python3 has already; only what is
                                          # missing is installed

The choice is written to .venv/.torch; `make` takes it from there the next time. `--dry-run` prints
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


def split(lock: str) -> tuple[list[str], str]:
    """(the packages of a lock that belong to torch, the text of all others)."""
    # a package is a line and the indented ones after it
    packages = re.findall(r"^\S.*\n(?:[ \t].*\n)*", lock, re.M)
    theirs = [text for text in packages if OF_TORCH.match(text)]
    return theirs, "".join(text for text in packages if text not in theirs)


def commands(torch: str) -> list[list[str]]:
    """The commands that install everything; `torch` as on the command line."""
    python = str(BIN / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if torch == "system":
        options = ["--no-build-isolation", "--constraint", str(VENV / "kept.txt")]
        ours = _editable(".[notebooks,cluster,test]")
        return [[*pip, "setuptools>=77"], [*pip, *options, *ours]]
    get_uv = [*pip, "uv"]
    install = [str(BIN / "uv"), "pip", "install"]
    into = ["--python", python]
    uv = [*install, "--quiet", *into]
    locked = ["--compile-bytecode", "--require-hashes"]
    ours = [*uv, "--no-deps", "--no-build-isolation", *_editable(".")]
    if not torch:
        if sys.stderr.isatty():
            uv = [*install, *into]  # with its progress
        return [get_uv, [*uv, *locked, "-r", "requirements.txt"], ours]
    theirs, _ = split(Path("requirements.txt").read_text())
    pair = [text.split()[0] for text in theirs if text.startswith("torch")]
    rest = [*locked, "--no-deps", "-r", str(VENV / "rest.txt")]
    return [get_uv, [*uv, "--torch-backend", torch, *pair], [*uv, *rest], ours]


def _editable(course):
    """The arguments that install the course from this folder, and the instructor's package."""
    arguments = ["-e", course]
    if INSTRUCTOR.exists():
        arguments += ["-e", "./instructor"]
    return arguments


def prepare(torch: str) -> None:
    """Make .venv where there is none, and the lists that the commands read."""
    if not (BIN / "python").exists():
        venv.create(VENV, with_pip=True, system_site_packages=torch == "system", symlinks=True)
    if torch == "system":
        if sys.prefix != sys.base_prefix:
            _see_parent()
        (VENV / "kept.txt").write_text(_kept_versions())
    elif torch:
        _, others = split(Path("requirements.txt").read_text())
        (VENV / "rest.txt").write_text(others)


def _see_parent():
    """Let .venv see the packages of the environment that runs this script.

    What that environment has is not in the folder of its base Python.
    """
    (packages,) = VENV.glob("lib/python*/site-packages")
    theirs = [path for path in sys.path if "site-packages" in path]
    (packages / "parent.pth").write_text("".join(f"{path}\n" for path in theirs))


def _kept_versions():
    """The lines "name==version" of all packages that "system" never exchanges."""
    kept = {}
    for package in distributions():
        name = package.metadata["Name"] or ""
        if KEPT.match(name):
            kept[name] = package.version
    return "".join(f"{name}=={number}\n" for name, number in sorted(kept.items()))


def refusal(torch: str) -> str | None:
    """Why this cannot work, in a sentence; None if it can."""
    before = (VENV / ".torch").read_text() if (VENV / ".torch").exists() else ""
    if (BIN / "python").exists() and "system" in (before, torch) and before != torch:
        return f"{VENV} was made with TORCH={before or '(none)'}; remove that folder first"
    if torch == "system":
        return _refusal_of_own_torch()
    if torch and not BUILDS.fullmatch(torch):
        known = "cpu, cu126, cu128, auto, system"
        return f"TORCH={torch} is no build of torch; take {known}, or leave it out"
    return None


def _refusal_of_own_torch():
    """Why the torch of this Python does not do, in a sentence; None if it does."""
    try:
        found = version("torch")
    except PackageNotFoundError:
        theirs = f"TORCH=system takes the torch of {sys.executable}"
        return f"{theirs}, which has none; name another one with PYTHON="
    oldest = re.search(r'"torch>=([\d.]+)', Path("pyproject.toml").read_text())[1]
    if _major_minor(found) < _major_minor(oldest):
        return f"the torch of {sys.executable} is {found}; the course needs {oldest} or later"
    return None


def _major_minor(version_):
    return [int(number) for number in re.findall(r"\d+", version_)[:2]]


def main() -> None:
    """Install, or print the commands that would."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    builds = "auto, cpu, cu126, cu128, …, system (default: the lock's)"
    parser.add_argument("torch", nargs="?", default="", help=builds)
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run none")
    asked = parser.parse_args()
    if why := refusal(asked.torch):
        sys.exit(f"error: {why}")
    if asked.dry_run:
        for command in commands(asked.torch):
            print(" ".join(command))
        return
    sizes = {
        "": "about 5 GB with torch",
        "system": "what is missing beside the torch that is there",
    }
    size = sizes.get(asked.torch, f"torch for {asked.torch}")
    print(f"installing into {VENV} (once; {size})", flush=True)
    prepare(asked.torch)
    for command in commands(asked.torch):
        if done := subprocess.run(command).returncode:
            sys.exit(f"error: this command failed with exit code {done}: {' '.join(command)}")
    (VENV / ".torch").write_text(asked.torch)


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[1])
    main()

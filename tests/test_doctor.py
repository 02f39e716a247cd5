"""course doctor: one line per thing and what to do where it fails; scripts/install.py: which commands install what."""

import builtins
import importlib.metadata
import platform
import re
import shutil
import subprocess
import sys
import webbrowser
from types import SimpleNamespace

import pytest
from conftest import ROOT

from course.commands import doctor
from course.commands.doctor import GIB, Finding, look
from course.datasets import data_folder

pytestmark = pytest.mark.check


def test_every_thing_gets_a_line_and_the_exit_code_counts_what_fails(monkeypatch):
    looks = {"a": lambda: Finding("ok", "fine"), "b": lambda: Finding("note", "less", "Get more.")}
    monkeypatch.setattr(doctor, "LOOKS", looks)
    said = []
    assert doctor.doctor(said.append) == 0 and said[-1].startswith("Ready")
    looks["c"] = lambda: 1 / 0
    said.clear()
    assert doctor.doctor(said.append) == 1
    assert [line[:4] for line in said if line[:4].strip() in ("ok", "--", "NO")] == [" ok ", " -- ", " NO "]
    assert any("ZeroDivisionError" in line for line in said) and said[-1].startswith("1 of 3 need you")


def test_what_is_not_ok_says_what_to_do():
    for name in doctor.LOOKS:
        finding = look(name)
        assert finding.state in doctor.MARKS and finding.sentence and "\n" not in finding.sentence
        assert finding.advice or finding.state == "ok", name
        assert len(finding.sentence.replace(str(data_folder()), "data")) <= 80, finding.sentence


def test_this_machine_passes_the_known_answer_and_is_a_pair():
    assert look("check") == Finding("ok", "scaled_lr: the reference is correct, a wrong answer is refused")
    assert look("packages").state == "ok" and look("Python").state in ("ok", "note")


def test_a_check_that_accepts_anything_fails(monkeypatch):
    from course.checks import large_batch

    monkeypatch.setattr(large_batch.scaled_lr, "judge", lambda *_, **__: SimpleNamespace(correct=True), raising=False)
    assert look("check").state == "fail"


def test_a_class_without_solutions_is_only_asked_to_refuse(monkeypatch):
    monkeypatch.setattr(doctor, "has_solutions", lambda: False)
    assert look("check") == Finding("ok", "scaled_lr: a wrong answer is refused")


@pytest.mark.parametrize(("system", "word"), [("Darwin", "Linux only"), ("Windows", "WSL 2")])
def test_other_systems_are_a_note(system, word, monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: system)
    assert look("Python").state == "note" and word in look("Python").advice


def test_torch_and_torchvision_that_are_no_pair(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("torchvision"):
            raise RuntimeError("operator torchvision::nms does not exist")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1")
    monkeypatch.setattr(builtins, "__import__", refuse)
    finding = look("packages")
    assert finding.state == "fail" and "nms does not exist" in finding.sentence and "do not fit" in finding.advice


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(doctor, "PACKAGES", ("torch", "no_such_package"))
    assert look("packages").sentence == "no_such_package not installed"


@pytest.mark.parametrize(("free", "scale", "state"), [(200, "gpu", "ok"), (5, "gpu", "note"), (10, "laptop", "ok"),
                                                      (1, "laptop", "fail"), (1, "smoke", "ok")])  # fmt: skip
def test_the_disk_is_asked_for_what_the_scale_writes(free, scale, state, monkeypatch):
    monkeypatch.setenv("COURSE_SCALE", scale)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free * GIB))
    assert look("disk").state == state


def test_little_memory_one_core_and_a_small_shm_are_said(monkeypatch):
    monkeypatch.setattr(doctor, "free_memory", lambda: GIB)
    monkeypatch.setattr(doctor, "cores", lambda: 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=64 * 2**20))
    assert look("memory").state == look("cores").state == "note"
    assert look("shared memory").state in ("ok", "fail")
    monkeypatch.setattr(doctor, "free_memory", lambda: None)
    assert look("memory").state == "note"


def test_no_browser_is_a_note(monkeypatch):
    def none():
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "get", none)
    assert look("browser").state == "note" and "--no-browser" in look("browser").advice


def test_stand_ins_are_told_from_real_data(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    (tmp_path / "lfw" / "standin-lfw").mkdir(parents=True)
    assert look("data").sentence == "none; stand-ins for LFW, Fashion-MNIST, MovieLens"
    for folder in ("lfw/lfw", "fashion/fashion", "movielens/ml-100k"):
        (tmp_path / folder).mkdir(parents=True)
    assert look("data") == Finding("ok", "LFW, Fashion-MNIST, MovieLens")


@pytest.mark.parametrize(
    ("driver", "cuda", "found", "advice"),
    [
        ("550.54", "13.0", "there is driver 550.54; torch for CUDA 13.0", "TORCH=cu126"),
        ("570.12", "13.0", "there is driver 570.12; torch for CUDA 13.0", "TORCH=cu128"),
        ("580.65", None, "built for processors alone", "TORCH=auto"),
        ("535.10", None, "built for processors alone", "TORCH=cu126"),
        ("470.25", "13.0", "driver 470.25 is too old for CUDA 12", "driver 525 or later"),
        ("580.65", "13.0", "fit, but torch sees no GPU", "nvidia-smi"),
        ("550.54", "12.6", "fit, but torch sees no GPU", "nvidia-smi"),
    ],
)
def test_a_driver_and_a_torch_that_sees_no_gpu(driver, cuda, found, advice, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "DRIVER", tmp_path / "version")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.version.cuda", cuda)
    assert look("GPU").state == "note", "no driver, no GPU"
    module = "Open Kernel Module for x86_64" if driver > "560" else "x86_64 Kernel Module"
    (tmp_path / "version").write_text(f"NVRM version: NVIDIA UNIX {module}  {driver}.06  Release Build\n")
    finding = look("GPU")
    assert finding.state == "fail" and found in finding.sentence and advice in finding.advice
    assert len(finding.sentence) <= 80


@pytest.fixture
def installed_by(tmp_path):
    """A function: words -> the process of the script in a folder without .venv; it prints the commands, runs none."""
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/install.py", "pyproject.toml", "requirements.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    script = [sys.executable, tmp_path / "scripts/install.py", "--dry-run"]
    return lambda *words: subprocess.run([*script, *words], capture_output=True, text=True)


def test_the_default_is_the_lock_with_hashes(installed_by):
    _, everything, course = installed_by().stdout.splitlines()
    assert everything.endswith("--require-hashes -r requirements.txt")
    assert course.endswith("--no-deps --no-build-isolation -e .")


def test_another_build_is_the_locked_pair_and_all_else_with_hashes(installed_by):
    locked = dict(re.findall(r"^(torch\w*)==(\S+)", (ROOT / "requirements.txt").read_text(), re.M))
    _, pair, rest, _ = installed_by("cu126").stdout.splitlines()
    assert pair.endswith(f"--torch-backend cu126 torch=={locked['torch']} torchvision=={locked['torchvision']}")
    assert "--require-hashes --no-deps" in rest


def test_the_rest_of_the_lock_is_all_but_torch_and_what_comes_with_it():
    sys.path.insert(0, str(ROOT / "scripts"))
    from install import split

    lock = (ROOT / "requirements.txt").read_text()
    theirs, rest = split(lock)
    assert len("".join(theirs)) + len(rest) == len(lock)
    names = [set(re.findall(r"^[\w.-]+", part, re.M)) for part in ("".join(theirs), rest)]
    assert {"torch", "torchvision", "triton"} <= names[0] and {"numpy", "torchmetrics"} <= names[1]
    assert not any(name.startswith(("nvidia-", "cuda-")) for name in names[1])


def test_the_torch_of_the_interpreter_is_kept(installed_by):
    """The environment of the tests plays the interpreter that has a torch."""
    first, last = installed_by("system").stdout.splitlines()
    assert "--constraint .venv/kept.txt" in last and "uv" not in first + last


@pytest.mark.parametrize("asked", ["cu999x", "gpu"])
def test_a_build_that_does_not_exist_is_refused_in_a_sentence(asked, installed_by):
    done = installed_by(asked)
    assert done.returncode == 1 and "no build of torch" in done.stderr and "Traceback" not in done.stderr

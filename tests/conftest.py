"""What every test shares: the devices there are, an own data folder, the smallest scale."""

import contextlib
import functools
import gc
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[1]
sys.modules["rfc3987_syntax"] = None  # as instructor/grading/__init__.py
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "data_scripts")]  # helpers of tests; scripts are not in a package

import forks  # noqa: E402

os.environ["COURSE_SCALE"] = "smoke"
os.environ["COURSE_ANSWERS"] = "off"
os.environ.pop("COURSE_DEVICE", None)


@pytest.fixture(scope="session", autouse=True)
def own_data(tmp_path_factory):
    """Prepared data of the user is neither read nor written; child processes get the folder through the environment."""
    os.environ["COURSE_DATA"] = str(tmp_path_factory.mktemp("data"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Each test draws the same random numbers in each run, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def pytest_generate_tests(metafunc):
    """Every device there is; without a GPU, modules with PRETENDED_CUDA try the pretended one (pretend_cuda.py).

    The checks of exercises are tried on that one in test_pretend_cuda.py.
    """
    if "device" in metafunc.fixturenames:
        kinds = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
        pretended = getattr(metafunc.module, "PRETENDED_CUDA", False) and len(kinds) == 1
        if pretended:  # torch must know the device before any test computes a gradient
            import pretend_cuda  # noqa: F401
        metafunc.parametrize("device", kinds + ["pretended"] * pretended, indirect=True)


@pytest.fixture
def device(request):
    """A torch.device, see pytest_generate_tests."""
    if request.param != "pretended":
        yield torch.device(request.param)
        return
    from pretend_cuda import pretend_cuda

    with pretend_cuda():
        yield torch.device("cuda", 0)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A course folder whose gradebook knows unit 03."""
    root = tmp_path_factory.mktemp("course")
    from instructor.grading import gradebook

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nbgrader.api.get_alembic_version", lambda: "0")  # it starts a program, which takes seconds
        gradebook.prepare("03_large_batch", root)
    return root


@pytest.fixture
def course(prepared, tmp_path):
    """A course folder of a test's own, with that gradebook."""
    shutil.copy(prepared / "gradebook.db", tmp_path)
    return tmp_path


@pytest.fixture(scope="session", autouse=True)
def masters_are_read_once():
    """All plans of grading share their source notebooks: to make those of a unit takes half a second of CPU."""
    from course.notebook.registry import solutions_folder
    from instructor.grading import plan

    made = functools.cache(lambda solutions, *which, make=plan.source_notebook: make(*which))

    def read(unit, part, asked=None):
        return made(solutions_folder(), unit, part, None if asked is None else frozenset(asked))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "source_notebook", read)
        yield


@pytest.fixture(scope="session")
def zygote():
    """What imports torch and forks into jails: one for all tests of a process, since it takes seconds to start."""
    from instructor.jail.zygote import Zygote

    with Zygote() as one:
        yield one


@pytest.fixture(scope="module")
def one_zygote(zygote):
    """Commands in this process share the zygote; those in processes of their own have their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("instructor.grading.command.Zygote", lambda unsafe, cuda: contextlib.nullcontext(zygote))
        yield zygote


@pytest.fixture
def unprivileged():
    """A folder that the user of this process may not write, be it root."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(65534)
        yield Path(folder)
        if is_root:
            os.seteuid(0)
        os.chmod(folder, 0o755)


def pytest_configure(config):
    """Kernels of notebooks are forks of one process, for all processes of the tests (forks.py)."""
    if not hasattr(config, "workerinput") and hasattr(os, "pidfd_open"):
        config.forks_folder = tempfile.TemporaryDirectory(prefix="forks-")
        config.forks = forks.start(Path(config.forks_folder.name))
    forks.warm_fork_servers()


def pytest_unconfigure(config):
    if hasattr(config, "forks"):
        config.forks.communicate()
        config.forks_folder.cleanup()


def pytest_collection_finish(session):
    """From now on no collection of garbage looks through what the tests are made of, and no fork copies it for that."""
    gc.collect()
    gc.freeze()


LONGEST = (
    "test_hub.py",  # first, as these wait more than they compute
    "test_browser.py",
    "test_workshop.py",
    "test_slurm.py",
    "test_marked_cells_give_the_same_output_again",
    "test_hostile.py",
    "test_nodes.py",
    "test_distributed.py",
    "test_reach.py",
    "test_a_class_is_graded",
    "test_mutants_are_rejected",
)
TOGETHER = ("test_hostile.py", "test_nodes.py", "test_distributed.py")  # their tests share what takes long to make
TIERS = ("check", "test", "all")


def pytest_addoption(parser):
    """The tier: `check` runs what is marked so, `test` all but what is marked `all`, `all` (the default) everything."""
    parser.addoption("--tier", choices=TIERS, default="all", help="make check, make test or make test-all")


@pytest.fixture(scope="session")
def tier(request):
    """The tier that runs, for a test that looks at less in a shorter one."""
    return request.config.getoption("--tier")


def pytest_collection_modifyitems(config, items):
    """Leave out what is not of the tier.  The longest tests first: the processes of pytest-xdist then end together.

    Its `worksteal` gives each process an equal share of the list, without a break, so each share starts with long ones.
    """
    chosen = config.getoption("--tier")
    marks = {id(item): {mark.name for mark in item.iter_markers()} for item in items}
    left_out = {
        "check": [item for item in items if "check" not in marks[id(item)] or "all" in marks[id(item)]],
        "test": [item for item in items if "all" in marks[id(item)]],
        "all": [],
    }[chosen]
    if left_out:
        gone = {id(item) for item in left_out}
        items[:] = [item for item in items if id(item) not in gone]
        config.hook.pytest_deselected(items=left_out)
    items[:] = _dealt(items, config.workerinput["workercount"] if hasattr(config, "workerinput") else 1)


def _dealt(items, processes):
    groups = [[item for item in items if name in item.nodeid] for name in LONGEST]
    long = {id(item) for group in groups for item in group}
    short = [item for item in items if id(item) not in long]
    stacks = []
    for name, group in zip(LONGEST, groups, strict=True):
        stacks += [group] if name in TOGETHER else [[item] for item in group]
    dealt = []
    for number in range(processes):
        size = (len(items) - len(dealt)) // (processes - number)
        share = [item for stack in stacks[number::processes] for item in stack]
        room = max(0, size - len(share))
        dealt += share + short[:room]
        del short[:room]
    return dealt + short

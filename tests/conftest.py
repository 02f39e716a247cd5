"""What every test shares: the devices there are, an own data folder, the smallest scale."""

import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "data_scripts")]  # helpers of tests; scripts are not in a package

os.environ["COURSE_SCALE"] = "smoke"
os.environ["COURSE_ANSWERS"] = "off"
os.environ.pop("COURSE_DEVICE", None)


@pytest.fixture(scope="session", autouse=True)
def own_data(tmp_path_factory):
    """Prepared data of the user is neither read nor written; child processes get the folder through the environment."""
    os.environ["COURSE_DATA"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    """Every torch.device there is."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    return torch.device(request.param)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A course folder whose gradebook knows unit 03."""
    root = tmp_path_factory.mktemp("course")
    from course.grading import gradebook

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nbgrader.api.get_alembic_version", lambda: "0")  # it starts a program, which takes seconds
        gradebook.prepare("03_large_batch", root)
    return root


@pytest.fixture
def course(prepared, tmp_path):
    """A course folder of a test's own, with that gradebook."""
    shutil.copy(prepared / "gradebook.db", tmp_path)
    return tmp_path


LONGEST = (
    "test_hostile.py",  # first, as it waits more than it computes
    "test_grading.py",
    "test_notebooks.py",
    "test_mutants_are_rejected",
    "test_nodes.py",
    "test_distributed.py",
)
TIERS = ("check", "test", "all")


def pytest_addoption(parser):
    """The tier: `check` runs what is marked so, `test` all but what is marked `all`, `all` (the default) everything."""
    parser.addoption("--tier", choices=TIERS, default="all", help="make check, make test or make test-all")


@pytest.fixture(scope="session")
def tier(request):
    """The tier that runs, for a test that looks at less in a shorter one."""
    return request.config.getoption("--tier")


def pytest_collection_modifyitems(config, items):
    """Leave out what is not of the tier.  The longest tests first: the processes of pytest-xdist then end together."""
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
    items.sort(key=lambda item: next((i for i, name in enumerate(LONGEST) if name in item.nodeid), len(LONGEST)))

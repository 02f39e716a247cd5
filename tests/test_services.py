"""A notebook service: one notebook alone in a folder, a Python with torch, and the class's wheel at an address."""

import functools
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import venv
import zipfile

import nbclient
import nbformat
import pytest
from conftest import ROOT

from course.checks.large_batch import scaled_lr
from course.learner.copies import is_edited
from instructor.release import asked
from instructor.release import class_folder as class_release
from instructor.release.wheel import CELL

UNIT, PART = "03_large_batch", "2_the_map"
ANSWER = """
def scaled_lr(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * (batch * accumulation * ranks / base_batch)
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The folder on the web where a class's release is, with its wheel and the facts of scaled_lr; and its path."""
    folder = tmp_path_factory.mktemp("web") / "class"
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        url = f"http://127.0.0.1:{server.server_port}/"
        files = class_release.release_files(asked.resolve(only=[f"{UNIT}/{PART}"]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(class_release, "exercises", lambda unit: [scaled_lr])  # the others take a minute
            files |= class_release.recorded_facts(UNIT)
        class_release.release(class_release.installable(files, url), folder)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield url, folder
        server.shutdown()


@pytest.fixture
def service(tmp_path, monkeypatch):
    """(folder, environment) of a Python that has all that ours has, but not the course, as the kernel "service"."""
    venv.create(tmp_path / "python", symlinks=True)
    python = tmp_path / "python/bin/python"
    (place,) = (tmp_path / "python").glob("lib/python*/site-packages")
    (place / "torch.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("site-packages")))
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = tmp_path / "jupyter/kernels/service/kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": argv, "display_name": "service", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    ours = ("COURSE_DATA", "COURSE_ANSWERS", "PYTHONPATH")
    env = {name: value for name, value in os.environ.items() if name not in ours}
    return tmp_path, env | {"HOME": str(tmp_path), "COURSE_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "", "no_proxy": "*"}


def test_a_notebook_alone_installs_the_course_checks_an_answer_and_keeps_it(address, service):
    (url, release), (home, env) = address, service
    nb = nbformat.read(release / "notebooks" / UNIT / f"{PART}.ipynb", as_version=4)
    nbformat.validate(nb)
    assert not is_edited(release / "notebooks" / UNIT / f"{PART}.ipynb") and nb.cells[1].id == "install"
    last = next(i for i, cell in enumerate(nb.cells) if cell.source.startswith("check.scaled_lr("))
    code = [cell for cell in nb.cells[: last + 1] if cell.cell_type == "code"]
    code = [cell for cell in code if "sgd_step" not in cell.source]  # an extra exercise, and what uses its answer
    nb.cells = [cell for cell in code if cell.id == "install" or "experiment" not in cell.metadata.get("tags", [])]
    next(cell for cell in nb.cells if "def scaled_lr" in cell.source).source = ANSWER
    nb.cells.append(nbformat.v4.new_code_cell("print(course.__file__, course.progress(), sep='\\n')"))
    (home / "alone").mkdir()
    client = nbclient.NotebookClient(nb, kernel_name="service", resources={"metadata": {"path": str(home / "alone")}})
    client.execute(env=env)
    said = ["".join(out.text for out in cell.outputs if "text" in out) for cell in nb.cells]
    assert said[0].count("\n") == 1 and said[0].startswith(f"The course is installed from {url}")
    assert "torch 2." in said[0] and "GPU: none" in said[0] and str(home / "scaling-pytorch") in said[0]
    assert "scaled_lr: correct" in said[-2] and "scaling_pytorch_course/course/__init__.py" in said[-1]
    assert [path.stem for path in home.glob("scaling-pytorch/data/answers/*/*/*.json")] == ["scaled_lr"]
    assert re.search(r"igger step +1 +1 +\d", said[-1]), said[-1]


@pytest.fixture
def installed(address, service):
    """A function: the words after `python` -> what that Python says, which has a class's wheel; and the release."""
    (_, release), (home, env) = address, service
    (wheel,) = release.glob("*.whl")

    def run(*words):
        call = [home / "python/bin/python", *words]
        return subprocess.run(call, env=env, cwd=home, capture_output=True, text=True, timeout=120)

    done = run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel))
    assert not done.returncode, done.stderr
    return run, release


def test_the_wheel_holds_the_class_s_commands_and_nothing_of_the_instructor(installed):
    run, _ = installed
    listed = run("-m", "course.cli", "--help").stdout.partition("Commands:")[2]
    assert " notebooks " in listed and " grade " not in listed
    refused = run("-m", "course.cli", "grade", "submitted")
    assert refused.returncode == 1 and "scaling-pytorch-course-instructor is not installed here" in refused.stderr
    missing = run("-c", "import instructor")
    assert "No module named 'instructor'" in missing.stderr


def test_the_wheel_alone_checks_a_notebook_and_looks_at_a_script(installed):
    run, release = installed
    checked = run("-m", "course.cli", "check", str(release / f"notebooks/{UNIT}/{PART}.ipynb"), "scaled_lr")
    assert checked.returncode == 1 and "scaled_lr: not yet (cpu)" in checked.stdout, checked.stderr
    looked = run("-m", "course.cli", "checkup", "--only-watch", str(ROOT / "tests/planted/healthy_mlp.py"))
    assert not looked.returncode and "Check-up of healthy_mlp.py" in looked.stdout, looked.stderr


def test_the_wheel_alone_starts_jupyterlab_on_its_notebooks(installed, monkeypatch):
    """Which replaces the process: what it would become is looked at, and test_lab.py opens one."""
    run, _ = installed
    code = (
        "import os; os.execv = lambda path, call: print(*call, sep='\\n'); from course.cli import main; main(['lab'])"
    )
    done = run("-c", code)
    (folder,) = [line.partition("=")[2] for line in done.stdout.splitlines() if "root_dir=" in line]
    assert (pathlib.Path(folder) / UNIT / f"{PART}.ipynb").is_file(), done.stderr


def test_the_wheel_is_the_release_and_the_same_each_time(address):
    url, release = address
    (path,) = release.glob("*.whl")
    names = (release / class_release.LIST).read_text().split("\n")[:-1]
    with zipfile.ZipFile(path) as file:
        inside = {name.partition("/")[2] for name in file.namelist() if name.startswith("scaling_pytorch_course/")}
    assert inside == {*names} - {path.name}
    files = {name: (release / name).read_bytes() for name in inside}
    assert class_release.wheel(files) == path.read_bytes()


def test_an_address_without_a_wheel_is_one_sentence(address, service):
    (url, _), (home, env) = address, service
    call = [home / "python/bin/python", "-c", CELL.format(url=f"{url}gone-1.0-py3-none-any.whl")]
    done = subprocess.run(call, env=env, cwd=home, capture_output=True, text=True)
    assert done.returncode and "OSError: pip cannot install http://127.0.0.1:" in done.stderr

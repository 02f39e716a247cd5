"""The repository as a whole: who may import whom, style, packages, what must never be committed."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import density
import pytest
from conftest import ROOT
from packaging.requirements import Requirement

from course.cli import INSTRUCTORS
from course.notebook.registry import parts, units
from instructor.authoring import masters
from instructor.authoring.lint import lint_unit
from instructor.verbs import VERBS

pytestmark = pytest.mark.check

GPU_SERVER = {"torch", "torchvision", "numpy", "PIL", "matplotlib", "tqdm", "cloudpickle", "anywidget", "traitlets"}
# lfw_dataset: `python -m course.lfw_dataset`
AT_THE_TOP = {"__init__", "cli", "device", "errors", "lfw_dataset", "text"}
# A room imports from lower levels, and from itself; course/ from nothing of instructor/.
LEVELS = """
    text
    errors
    system
    notebook device datasets
    experiment_sizes measure
    loading parallel learner
    training plots figures engine
    checks
    checkup commands
    cli lfw_dataset
    instructor/jail
    instructor/authoring
    instructor/release instructor/show
    instructor/grading
    instructor/bench
    instructor/verbs instructor/__main__
"""
LEVEL = {name: level for level, line in enumerate(LEVELS.strip().splitlines()) for name in line.split()}
COMMANDS = ("*/command.py", "commands/loader_report.py", "cli.py")  # of course/: they may use click
# measured where they can be imported, needed nowhere
RIVALS = {"bench/loading.py": {"ffcv"}, "bench/grouping.py": {"asym"}}


def imported(path):
    """Full names of the modules that the script at `path` imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(package="course"):
    return sorted((ROOT / package).rglob("*.py"))


def inside(path):
    """The path of a module within its package."""
    return path.relative_to(ROOT).relative_to(path.relative_to(ROOT).parts[0])


def room(dotted):
    """The name in LEVELS of the room that a module is in; None for modules that are not ours."""
    package, *names = dotted.split(".")
    if package == "course" and names:
        return names[0]
    return f"instructor/{names[0]}" if package == "instructor" and names else None


def test_the_course_imports_only_what_a_gpu_server_has():
    known = set(sys.stdlib_module_names) | GPU_SERVER | {"course"}
    for path in modules():
        if not any(inside(path).match(pattern) for pattern in COMMANDS):
            assert not {name.split(".")[0] for name in imported(path)} - known, inside(path)


def test_rooms_import_from_lower_levels_only():
    for path in [*modules(), *modules("instructor")]:
        mine = room(".".join(path.relative_to(ROOT).with_suffix("").parts))
        if path.stem == "__init__" and path.parent.parent == ROOT:
            continue
        for name in imported(path):
            other = room(name)
            if other in LEVEL and other != mine:
                assert LEVEL[other] < LEVEL[mine], f"{path.relative_to(ROOT)} imports {name}"


def test_nothing_private_of_multiprocessing_is_used():
    """Its handshake with the fork server changed in Python 3.14, and only grading noticed: a class lost its points."""
    for path in [*modules(), *modules("instructor")]:
        text = path.read_text()
        private = [name for name in imported(path) if re.match(r"multiprocessing\b.*\._[a-z]", name)]
        assert not private and not re.search(r"multiprocessing(\.\w+)*\._[a-z]", text), inside(path)


def test_every_room_has_its_level_and_few_modules_are_at_the_top():
    files = [*modules(), *modules("instructor")]
    rooms = {room(".".join(path.relative_to(ROOT).with_suffix("").parts)) for path in files}
    assert rooms - {"__init__", "instructor/__init__"} == LEVEL.keys()
    assert {path.stem for path in (ROOT / "course").glob("*.py")} == AT_THE_TOP


def test_the_instructors_package_names_all_its_folders_and_adds_the_verbs_that_a_class_is_told_of():
    declared = tomllib.loads((ROOT / "instructor/pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "instructor").rglob("__init__.py")}
    assert sorted(there) == declared
    assert sorted(VERBS) == INSTRUCTORS


LOADED = """
import sys, torch
before = {*sys.modules, *sys.stdlib_module_names}
import course
from course.checks import large_batch
print(*{name.split(".")[0] for name in sys.modules.keys() - before} - sys.stdlib_module_names)
from course.engine.limits import Limits, run_answer
run_answer(int, None, Limits())
print("torch._inductor" in sys.modules)
"""


def test_importing_the_course_loads_little_beyond_torch_and_a_check_not_its_compiler():
    """The compiler takes a second and 140 MB; `torch.use_deterministic_algorithms` loads it, whatever it is told."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    names, compiler = done.stdout.splitlines()
    assert {*names.split()} <= {"course", "numpy"} and compiler == "False"


def test_ruff_finds_nothing():
    for action in (["check"], ["format", "--check"]):
        done = subprocess.run([sys.executable, "-m", "ruff", *action, "."], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_code_is_written_for_reading_aloud():
    """In course/ and instructor/ together; tests/density.py prints the figures beside those of other codebases."""
    folders = ROOT / "course", ROOT / "instructor"
    _, long_lines, comprehensions, packed, typed = density.density(*folders).figures
    assert long_lines <= 2 and comprehensions <= 30 and packed <= 1.5 and typed >= 95
    choices = []
    for path in [*modules(), *modules("instructor")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if density.is_statement_of_choice(node):
                choices.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert choices == [], "write an if"


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_environment_of_conda_and_pyproject_name_the_same_packages():
    lines = [line.strip("- \n") for line in (ROOT / "environment.yml").read_text().splitlines() if "- " in line]
    theirs = [line for line in lines[lines.index("pip:") + 1 :] if not line.startswith("editable")]
    ours = project()
    assert theirs == sum(ours["optional-dependencies"].values(), ours["dependencies"])


def test_lock_holds_every_package_in_a_version_asked_for_with_hashes_and_no_address():
    lock = (ROOT / "requirements.txt").read_text()
    assert "://" not in lock and "--index" not in lock
    locked = dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", lock, re.M))
    assert lock.count("--hash=sha256:") >= len(locked) > 50
    ours = project()
    for requirement in map(Requirement, sum(ours["optional-dependencies"].values(), ours["dependencies"])):
        assert requirement.specifier.contains(locked[requirement.name]), requirement


def tracked():
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if out.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in out.stdout.split("\0") if name and (ROOT / name).exists()]


def test_nothing_is_committed_that_must_not_be():
    host = re.compile("|".join(("py" + r"pi\.org", "python" + "hosted", "npm" + "js", "deb" + r"ian\.org")))
    for path in tracked():
        assert path.stat().st_size < 2_000_000, f"{path} is over 2 MB"
        if path.suffix not in (".png", ".jpg"):
            text = path.read_text()
            assert str(ROOT) + "/" not in text and not host.search(text), path
            assert "/" + "root/" not in text, path


def test_the_tree_in_contributing_names_every_room():
    (tree,) = re.findall(r"```\n(course/ .*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    ours, _, _ = tree.partition("\nsolutions/")
    for package, rooms in zip(("course", "instructor"), ours.split("\ninstructor/"), strict=True):
        folders = {f"{path.parent.name}/" for path in (ROOT / package).glob("*/__init__.py")}
        files = {path.name for path in (ROOT / package).glob("[!_]*.py")}
        assert sorted(re.findall(r"^    ([\w.]+/?) ", rooms, re.M)) == sorted(folders | files)
    for folder in re.findall(r"^([\w/]+/) ", tree, re.M):
        assert (ROOT / folder).is_dir(), f"CONTRIBUTING's tree names {folder}, which is not there"


@pytest.mark.parametrize("unit", units())
def test_the_lint_refuses_no_master(unit):
    assert lint_unit(unit) == []
    for part in parts(unit):
        masters.source_notebook(unit, part)  # raises CourseError with the faults


def test_no_test_imports_another():
    files = sorted((ROOT / "tests").glob("test_*.py"))
    names = {path.stem for path in files}
    for path in files:
        assert not names & {name.split(".")[0] for name in imported(path)}, path.name


def test_links_of_the_documents_lead_somewhere():
    for document in [path for path in tracked() if path.suffix == ".md"]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
            assert "://" in target or (document.parent / Path(target)).exists(), f"{document.name}: {target}"

"""The repository as a whole: who may import whom, style, packages, what must never be committed."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT
from packaging.requirements import Requirement

from course.publish import build
from course.publish.lint import lint_unit
from course.units import parts, units

pytestmark = pytest.mark.check

GPU_SERVER = {"torch", "torchvision", "numpy", "PIL", "matplotlib", "tqdm", "cloudpickle"}
AT_THE_TOP = {"__init__", "cli", "device", "errors", "units", "lfw_dataset"}  # the last: `python -m course.lfw_dataset`
# A package, or module at the top, imports from lower levels, and from itself.
LEVELS = """
    errors
    system
    device units
    datasets measure
    loading parallel learner
    training plots
    checks
    checkup commands publish
    grading
    benchmarks
    cli lfw_dataset
"""
LEVEL = {name: level for level, line in enumerate(LEVELS.strip().splitlines()) for name in line.split()}
COMMANDS = ("publish/*", "grading/*", "*/command.py", "cli.py")  # they may use click, jupytext and nbgrader
# measured where they can be imported, needed nowhere
RIVALS = {"benchmarks/loading.py": {"ffcv"}, "benchmarks/grouping.py": {"asym"}}
MOST_LINES = {
    "course/**/*.py": 600,
    "tests/**/*.py": 600,
    "solutions/*/[0-9]_*.py": 1200,
    "solutions/*/answers/*.py": 450,
}
MEDIAN, NINE_OF_TEN, LONGEST = 8, 24, 80  # lines of a function


def imported(path):
    """Full names of the modules that the script at `path` imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules():
    return sorted((ROOT / "course").rglob("*.py"))


def in_course(path):
    return path.relative_to(ROOT / "course")


def test_the_course_imports_only_what_a_gpu_server_has():
    known = set(sys.stdlib_module_names) | GPU_SERVER | {"course"}
    for path in modules():
        if not any(in_course(path).match(pattern) for pattern in COMMANDS) and in_course(path).parts[0] != "grading":
            foreign = {name.split(".")[0] for name in imported(path)} - known
            assert not foreign - RIVALS.get(in_course(path).as_posix(), set()), in_course(path)


def test_packages_import_from_lower_levels_only():
    for path in modules():
        mine = in_course(path).with_suffix("").parts[0]
        for name in imported(path):
            top, *inside = name.split(".")
            if top == "course" and inside and inside[0] in LEVEL and mine not in (inside[0], "__init__"):
                assert LEVEL[inside[0]] < LEVEL[mine], f"{in_course(path)} imports {name}"


def test_nothing_private_of_multiprocessing_is_used():
    """Its handshake with the fork server changed in Python 3.14, and only grading noticed: a class lost its points."""
    for path in modules():
        text = path.read_text()
        private = [name for name in imported(path) if re.match(r"multiprocessing\b.*\._[a-z]", name)]
        assert not private and not re.search(r"multiprocessing(\.\w+)*\._[a-z]", text), in_course(path)


def test_every_package_has_its_level_and_few_modules_are_at_the_top():
    names = {in_course(path).with_suffix("").parts[0] for path in modules()} - {"__init__"}
    assert names == LEVEL.keys()
    assert {path.stem for path in (ROOT / "course").glob("*.py")} == AT_THE_TOP


LOADED = """
import sys, torch
before = {*sys.modules, *sys.stdlib_module_names}
import course
from course.checks import large_batch
print(*{name.split(".")[0] for name in sys.modules.keys() - before} - sys.stdlib_module_names)
from course.checks.limits import Limits, run_answer
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


def test_the_tree_in_contributing_names_every_package_of_the_course():
    (tree,) = re.findall(r"```\n(course/ .*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    inside, _, _ = tree.partition("\nsolutions/")
    named = re.findall(r"^    ([\w.]+/?) ", inside, re.M)
    assert sorted(named) == sorted({f"{path.parent.name}/" for path in (ROOT / "course").glob("*/__init__.py")}
                                   | {path.name for path in (ROOT / "course").glob("[!_]*.py")})  # fmt: skip
    for folder in re.findall(r"^([\w/]+/) ", tree, re.M):
        assert (ROOT / folder).is_dir(), f"CONTRIBUTING's tree names {folder}, which is not there"


@pytest.mark.parametrize("pattern", MOST_LINES)
def test_no_file_is_longer_than_one_can_read(pattern):
    sizes = {p.relative_to(ROOT).as_posix(): len(p.read_text().splitlines()) for p in ROOT.glob(pattern)}
    assert sizes
    assert {name: size for name, size in sizes.items() if size > MOST_LINES[pattern]} == {}


def function_lengths(*folders):
    """{file:line name: lines} of every function in the Python files of `folders`."""
    lengths = {}
    for path in [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                place = f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
                lengths[place] = node.end_lineno - node.lineno + 1
    return lengths


@pytest.mark.parametrize("folder", ["course", "tests"])
def test_functions_are_short(folder):
    lengths = function_lengths(folder)
    assert {place: lines for place, lines in lengths.items() if lines > LONGEST} == {}
    in_order = sorted(lengths.values())
    assert in_order[len(in_order) // 2] <= MEDIAN
    assert in_order[len(in_order) * 9 // 10] <= NINE_OF_TEN


@pytest.mark.parametrize("unit", units())
def test_the_lint_refuses_no_master(unit):
    assert lint_unit(unit) == []
    for part in parts(unit):
        build.source_notebook(unit, part)  # raises CourseError with the faults


def test_no_test_imports_another():
    files = sorted((ROOT / "tests").glob("test_*.py"))
    names = {path.stem for path in files}
    for path in files:
        assert not names & {name.split(".")[0] for name in imported(path)}, path.name


def test_links_of_the_documents_lead_somewhere():
    for document in [path for path in tracked() if path.suffix == ".md"]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
            assert "://" in target or (document.parent / Path(target)).exists(), f"{document.name}: {target}"

"""The repository as a whole: who may import whom, style, packages, what must never be committed."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT

GPU_SERVER = {"torch", "torchvision", "numpy", "PIL", "matplotlib", "tqdm", "cloudpickle"}
# data_scripts -> data -> datasets -> loaders -> models + training -> metrics, usage -> plots -> checks -> authoring
# -> benchmarks, which measure all of it
LAYER = {"errors": 0, "files": 1, "device": 1, "datasets": 2, "loaders": 3, "models": 4, "metrics": 4, "distributed": 4,
         "training": 5, "usage": 5, "recommender": 6, "plots": 6, "checks": 7, "lfw_dataset": 8, "authoring": 9,
         "benchmarks": 10}  # fmt: skip
RIVALS = {"benchmarks/loading.py": {"ffcv"}}  # measured where they can be imported, needed nowhere
ALLOWED = {(room, "authoring.reference") for room in ("checks", "lfw_dataset")}


def imported(path):
    """Full names of the modules that the script at `path` imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules():
    return sorted((ROOT / "course").rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_of_the_course_imports_only_what_a_gpu_server_has(path):
    if path.parent.name == "authoring" and path.name != "reference.py":
        pytest.skip("authoring may use jupytext and nbgrader")
    foreign = {name.split(".")[0] for name in imported(path)} - set(sys.stdlib_module_names) - GPU_SERVER - {"course"}
    assert not foreign - RIVALS.get(str(path.relative_to(ROOT / "course")), set())


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_arrows_between_modules_point_one_way(path):
    mine = path.relative_to(ROOT / "course").with_suffix("").parts[0]
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "course" or len(parts) < 2 or mine == "__init__":
            continue
        theirs = parts[1]
        if theirs in LAYER and theirs != mine and (mine, ".".join(parts[1:3])) not in ALLOWED:
            assert LAYER[theirs] < LAYER[mine], f"{path.name} imports {name}"


def test_importing_the_course_loads_nothing_of_jupyter_and_little_beyond_torch():
    code = (
        "import sys, torch; before = set(sys.modules); import course; from course.checks import large_batch;"
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(out.split()) <= {"course", "numpy"}


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


def test_lock_holds_every_package_with_hashes_and_no_address():
    lock = (ROOT / "requirements.txt").read_text()
    assert "://" not in lock and "--index" not in lock
    blocks = re.findall(r"^([A-Za-z0-9_.-]+)==\S.*?(?=^\S|\Z)", lock, re.M | re.S)
    assert lock.count("--hash=sha256:") >= len(blocks) > 50
    ours = project()
    for requirement in sum(ours["optional-dependencies"].values(), ours["dependencies"]):
        assert re.match(r"[a-z-]+", requirement)[0] in blocks


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


def test_readme_tree_names_every_file_of_the_course():
    readme = (ROOT / "README.md").read_text()
    for path in tracked():
        relative = path.relative_to(ROOT)
        if relative.parts[0] in ("course", "data_scripts") and path.name != "__init__.py":
            assert path.name in readme, f"README's tree lacks {relative}"


def test_links_of_the_documents_lead_somewhere():
    for document in [path for path in tracked() if path.suffix == ".md"]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
            assert "://" in target or (document.parent / Path(target)).exists(), f"{document.name}: {target}"

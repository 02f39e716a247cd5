"""Make a class's release one file that pip installs, and the cell by which notebooks install it.

It is for notebook services. All of the release lies in one folder of site-packages, so that it is
there what it is elsewhere; a .pth file next to it adds that folder to Python's path.  torch,
torchvision and numpy are not among its requirements: a service has its own.
"""

import base64
import hashlib
import io
import re
import tomllib
import zipfile
from collections.abc import Mapping
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from course.learner.copies import digest
from course.notebook.cells import EXPERIMENT

# of the release, within site-packages; also the package's name in the wheel's
FOLDER = "scaling_pytorch_course"
SERVICES_OWN = r"(torch|torchvision|numpy)\b"
WHEEL = b"Wheel-Version: 1.0\nGenerator: course\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
CELL = """\
try:
    import course.checks
except ImportError:  # on a notebook service: get the class's package, \
and use the torch that is there
    import site, subprocess, sys

    URL = "{url}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", URL]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"pip cannot install {{URL}}; can this service reach it? \
{{done.stderr.strip()}}")
    site.main()  # looks for new packages
    from course.commands.service import installed

    print(installed(URL))"""


def with_install_cell(nb: NotebookNode, url: str) -> NotebookNode:
    """The learner's notebook `nb` with a cell that installs `url` where the course is not there.

    The cell is below the title.
    """
    source = CELL.format(url=url)
    cell = new_code_cell(source, id="install", metadata={"tags": [EXPERIMENT]})
    nb.cells.insert(1, cell)
    nb.metadata.course["sources"] = digest(nb)
    return nb


def wheel_name(files: Mapping[str, Any]) -> str:
    """The name of the wheel of a release of `files`."""
    return f"{FOLDER}-{_project(files)['version']}-py3-none-any.whl"


def _project(files):
    return tomllib.loads(files["pyproject.toml"].decode())["project"]


def wheel(files: dict[str, bytes]) -> bytes:
    """The wheel of a release of `files`, {name: bytes}; the same files give the same bytes."""
    project = _project(files)
    info = f"{FOLDER}-{project['version']}.dist-info"
    content = {f"{FOLDER}/{name}": data for name, data in sorted(files.items())}
    content[f"{FOLDER}.pth"] = f"{FOLDER}\n".encode()
    content[f"{info}/METADATA"] = _metadata(project).encode()
    content[f"{info}/WHEEL"] = WHEEL
    content[f"{info}/entry_points.txt"] = _entry_points(project).encode()
    record = [f"{name},sha256={_hash(data)},{len(data)}" for name, data in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in content.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            file.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _metadata(project):
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
    ]
    for need in project["dependencies"]:
        if not re.match(SERVICES_OWN, need):
            lines.append(f"Requires-Dist: {need}")
    return "\n".join([*lines, ""])


def _entry_points(project):
    commands = [f"{name} = {place}" for name, place in project["scripts"].items()]
    return "\n".join(["[console_scripts]", *commands, ""])


def _hash(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()

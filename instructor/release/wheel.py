"""A class's release as one file that pip installs, for notebook services, and the cell by which
notebooks install it.

All of the release lies in one folder of site-packages, so that it is there what it is elsewhere; a
.pth file beside it adds that folder to Python's path.  torch, torchvision and numpy are not among
its requirements: a service has its own.
"""

import base64
import hashlib
import io
import re
import tomllib
import zipfile

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from course.learner.copies import digest

# of the release, within site-packages; also the package's name in the wheel's
FOLDER = "scaling_pytorch_course"
SERVICES_OWN = r"(torch|torchvision|numpy)\b"
CELL = """\
try:
    import course.checks
except ImportError:  # on a notebook service: get the class's package, and use the torch that is there
    import site, subprocess, sys

    URL = "{url}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", URL]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"pip cannot install {{URL}}; can this service reach it? {{done.stderr.strip()}}")
    site.main()  # looks for new packages
    from course.commands.service import installed

    print(installed(URL))"""


def with_install_cell(nb: NotebookNode, url: str) -> NotebookNode:
    """The learner's notebook `nb` with a cell, below its title, that installs `url` where the
    course is not there.
    """
    nb.cells.insert(
        1, new_code_cell(CELL.format(url=url), id="install", metadata={"tags": ["experiment"]})
    )
    nb.metadata.course["sources"] = digest(nb)
    return nb


def wheel_name(files: dict) -> str:
    """The name of the wheel of a release of `files`."""
    return f"{FOLDER}-{_project(files)['version']}-py3-none-any.whl"


def _project(files):
    return tomllib.loads(files["pyproject.toml"].decode())["project"]


def wheel(files: dict[str, bytes]) -> bytes:
    """The wheel of a release of `files`, {name: bytes}; the same files give the same bytes."""
    project = _project(files)
    info = f"{FOLDER}-{project['version']}.dist-info"
    needs = [need for need in project["dependencies"] if not re.match(SERVICES_OWN, need)]
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
    ]
    metadata += [
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
    ]
    commands = [f"{name} = {place}" for name, place in project["scripts"].items()]
    content = {f"{FOLDER}/{name}": data for name, data in sorted(files.items())} | {
        f"{FOLDER}.pth": f"{FOLDER}\n".encode(),
        f"{info}/METADATA": "\n".join(
            [*metadata, *(f"Requires-Dist: {need}" for need in needs), ""]
        ).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: course\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "\n".join(["[console_scripts]", *commands, ""]).encode(),
    }
    record = [f"{name},sha256={_hash(data)},{len(data)}" for name, data in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(out := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in content.items():
            file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _hash(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()

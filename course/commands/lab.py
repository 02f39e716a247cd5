"""`course lab`: open JupyterLab on the notebooks, without the instructor's panels and the news."""

import importlib.util
import json
import os
import socket
import sys
from typing import NoReturn

from course.errors import CourseError
from course.system.files import write_text
from course.system.folders import ROOT

HIDDEN = [
    "@jupyter/nbgrader:create-assignment",
    "@jupyter/nbgrader:formgrader",
    "@jupyter/nbgrader:course-list",
    "@jupyter/nbgrader:assignment-list",
    "@jupyterlab/apputils-extension:announcements",
]
# leaves the width of the file list to the names of parts
OVERRIDES = {"@jupyterlab/filebrowser-extension:browser": {"showLastModifiedColumn": False}}


def check_port(port: int) -> None:
    """Raise CourseError if something listens on `port`.

    Jupyter would then take the port for IPv6 alone.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CourseError(
                f"port {port} cannot be used ({error.strerror}); "
                f"choose another: course lab --port {port + 1}"
            ) from None


def open_lab(port: int | None, browser: bool, folder: str) -> NoReturn:
    """Become a JupyterLab on the notebooks in `folder`.

    Args:
        port: this one and no other; None for 8888 or the next free one.
        browser: whether to open one; else only the address is printed.

    Raises: CourseError if JupyterLab is not installed, or the port is taken.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise CourseError(
            "JupyterLab is not installed here; install the course with its notebooks: make install"
        )
    settings = ROOT / "build" / "lab"
    disabled = {"disabledExtensions": dict.fromkeys(HIDDEN, True)}
    write_text(settings / "page_config.json", json.dumps(disabled))
    write_text(settings / "overrides.json", json.dumps(OVERRIDES))
    call = [sys.executable, "-m", "jupyterlab"]
    call.append(f"--ServerApp.root_dir={folder}")
    call.append(f"--LabApp.app_settings_dir={settings}")
    call.append("--LabApp.news_url=None")
    call.append("--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate")
    if port is not None:
        check_port(port)
        call += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if not browser:
        call.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        call.append("--allow-root")  # in a container; Jupyter refuses root otherwise
    os.execv(sys.executable, call)

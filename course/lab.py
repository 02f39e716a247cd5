"""Open JupyterLab on the notebooks, with the instructor's panels and the news question off: `make lab [PORT=8888]`."""

import argparse
import json
import os
import socket
import sys
from pathlib import Path

from course.errors import CourseError, command
from course.files import write_text

ROOT = Path(__file__).parents[1]
HIDDEN = [
    "@jupyter/nbgrader:create-assignment",
    "@jupyter/nbgrader:formgrader",
    "@jupyter/nbgrader:course-list",
    "@jupyter/nbgrader:assignment-list",
    "@jupyterlab/apputils-extension:announcements",
]


def check_port(port):
    """Raise CourseError if something already listens on `port` of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CourseError(
                f"port {port} cannot be used ({error.strerror}); choose another: make lab PORT={port + 1}"
            ) from None


@command
def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m course.lab", description=__doc__)
    parser.add_argument("--port", type=int, help="this port and no other (default: 8888 or the next free one)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    args = parser.parse_args(argv)
    settings = ROOT / "build" / "lab"
    write_text(settings / "page_config.json", json.dumps({"disabledExtensions": dict.fromkeys(HIDDEN, True)}))
    call = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={ROOT / 'notebooks'}"]
    call += [f"--LabApp.app_settings_dir={settings}", "--LabApp.news_url=None", "--LabApp.check_for_updates_class="
             "jupyterlab.NeverCheckForUpdate"]  # fmt: skip
    if args.port is not None:
        check_port(args.port)
        call += [f"--ServerApp.port={args.port}", "--ServerApp.port_retries=0"]
    if args.no_browser:
        call.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        call.append("--allow-root")  # in a container; Jupyter refuses root otherwise
    os.execv(sys.executable, call)


if __name__ == "__main__":
    main()

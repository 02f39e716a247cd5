"""course lab: a real JupyterLab on the notebooks, without the instructor's panels; a taken port is one sentence."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from conftest import ROOT
from walks import free_port

from course.commands import lab
from course.notebook.registry import units


@pytest.fixture(scope="module")
def get(tmp_path_factory):
    """A function: path on a running JupyterLab -> text."""
    port = free_port()
    call = [sys.executable, "-m", "course.cli", "lab", "--no-browser", "--port", str(port)]
    home = str(tmp_path_factory.mktemp("home"))  # the user's own Jupyter settings are not part of this test
    env = os.environ | {"JUPYTER_TOKEN": "t", "HOME": home}
    log = tmp_path_factory.mktemp("lab") / "log"
    with log.open("w") as file:
        server = subprocess.Popen(call, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def fetch(path):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": "token t"})
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.read().decode()

    for _ in range(240):
        try:
            fetch("/api/status")
            break
        except urllib.error.URLError:
            assert server.poll() is None, log.read_text()
            time.sleep(0.25)
    yield fetch
    server.terminate()
    server.wait(30)


def test_lab_opens_on_the_notebooks(get):
    names = {entry["name"] for entry in json.loads(get("/api/contents/"))["content"]}
    assert set(units()) <= names


def test_instructors_panels_and_the_news_are_off(get):
    config = json.loads(re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', get("/lab"), re.S)[1])
    off = config["disabledExtensions"]
    assert all(name in off for name in lab.HIDDEN)
    assert not any("validate" in name for name in off), "learners validate their notebooks"


def test_a_taken_port_is_one_sentence():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        call = [sys.executable, "-m", "course.cli", "lab", "--port", str(port), "--no-browser"]
        done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"error: port {port} cannot be used (Address already in use); choose another: course lab --port"
    )
    assert done.stderr.count("\n") == 1


def test_the_list_of_files_gives_its_room_to_names(get):
    settings = json.loads(get("/lab/api/settings/@jupyterlab/filebrowser-extension:browser"))
    assert settings["schema"]["properties"]["showLastModifiedColumn"]["default"] is False

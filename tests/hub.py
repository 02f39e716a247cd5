"""A class on a JupyterHub: `python tests/hub.py FOLDER` goes from release to feedback as docs/hub.md says.

Two learners and a teacher, three users of the system who exist only here: the program runs as root in namespaces of its
own (`call` starts it so), where /srv and /home are empty and the configuration files of docs/hub.md lie where it says.
Learners act through what the buttons of nbgrader's panels call, the teacher in a terminal of JupyterLab and, in
Chromium, in Formgrader.  Prints a line per step; pictures go to FOLDER/pictures, the hub's log is FOLDER/hub.log.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import browser
import nbformat
from walks import PATIENCE, ROOT, NotHere, clone, do, lacking, main, wait_until

from course.notebook.cells import read_cells
from course.notebook.registry import solutions_folder

TOOLS = ROOT / "build" / "hub"  # what `make hub-tools` installs
JUPYTERHUB = TOOLS / "bin" / "jupyterhub"
PROXY = TOOLS / "node_modules" / ".bin" / "configurable-http-proxy"
NAMESPACES = "unshare --mount --net --pid --fork --kill-child --mount-proc".split()
IDS = {"ann": 61001, "bob": 61002, "teacher": 61003}
LEARNERS = ("ann", "bob")
UNIT, PART, EXERCISE, TEXT = "05_batch_grouping", "4_no_padding_at_all", "block_mask", "your_data"
HUB, TOKEN, PASSWORD = "http://127.0.0.1:8000", uuid.uuid4().hex, uuid.uuid4().hex
ATTACK = '<script>window.ran = 1</script><img src="x" onerror="window.ran = 2"><b>my own data</b>'
CONFIG = f"""
load_subconfig("/srv/hub/jupyterhub_config.py")
c.JupyterHub.bind_url = "{HUB}"
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = "{PASSWORD}"
c.Authenticator.allowed_users = {set(IDS)}
c.JupyterHub.services = [dict(name="walk", api_token="{TOKEN}")]
c.JupyterHub.load_roles = [
    dict(name="walk", services=["walk"], scopes=["admin:servers", "list:users", "access:servers"])
]
c.ConfigurableHTTPProxy.command = ["{PROXY}"]
c.Spawner.cmd = ["{TOOLS / "bin" / "jupyterhub-singleuser"}"]
c.Spawner.start_timeout = c.Spawner.http_timeout = {PATIENCE}
c.Spawner.environment |= dict(
    JUPYTER_CONFIG_PATH=c.Spawner.environment["JUPYTER_CONFIG_PATH"] + ":{sys.prefix}/etc/jupyter",
    JUPYTER_PATH="{sys.prefix}/share/jupyter", JUPYTERLAB_DIR="{sys.prefix}/share/jupyter/lab",
    COURSE_SCALE="smoke", OMP_NUM_THREADS="1",
)
"""


def missing():
    """Why the hub cannot be tried on this machine; None if it can."""
    if reason := browser.missing():
        return reason
    if not (JUPYTERHUB.exists() and PROXY.exists()):
        return "no JupyterHub in build/hub: make hub-tools"
    programs = {"unshare": "util-linux", "ip": "iproute2", "bwrap": "bubblewrap", "node": "nodejs"}
    return lacking(programs, [*NAMESPACES, "mount", "-t", "tmpfs", "none", "/srv"])


def call(folder):
    """The command that walks, with its output in FOLDER."""
    return [*NAMESPACES, sys.executable, __file__, str(folder)]


# ---- the machine, as docs/hub.md describes it


def mount(*words):
    subprocess.run(["mount", *map(str, words)], check=True)


def make_readable(paths, stage):
    """Let every user of this namespace reach `paths`, some of which may lie in a folder that only root may enter."""
    closed = {}
    for path in map(Path, paths):
        above = [folder for folder in reversed(path.parents) if not folder.stat().st_mode & 1]
        if above:
            closed.setdefault(above[0], []).append(path)
    for number, (folder, inside) in enumerate(closed.items()):
        staged = [(path, stage / f"{number}-{i}") for i, path in enumerate(inside)]
        for path, place in staged:
            place.mkdir(parents=True)
            mount("--bind", path, place)
        mount("-t", "tmpfs", "-o", "mode=755", "none", folder)
        for path, place in staged:
            path.mkdir(parents=True, exist_ok=True)
            mount("--bind", place, path)


def make_users(folder):
    """Three users of the system with homes of their own, in this namespace alone."""
    for name, line in {"passwd": "{0}:x:{1}:{1}::/home/{0}:/bin/bash", "group": "{0}:x:{1}:"}.items():
        lines = "".join(line.format(user, number) + "\n" for user, number in IDS.items())
        (folder / name).write_text(Path(f"/etc/{name}").read_text() + lines)
        mount("--bind", folder / name, f"/etc/{name}")
    mount("-t", "tmpfs", "-o", "mode=755", "none", "/home")
    for user, number in IDS.items():
        home = Path("/home") / user
        home.mkdir(mode=0o700)
        os.chown(home, number, number)


def as_user(user, command, **options):
    """Run `command` as one of the users, in a login of its own; returns what it printed."""
    env = {"HOME": f"/home/{user}", "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    number = IDS[user]
    done = subprocess.run(command, user=number, group=number, extra_groups=[], env=env, cwd=env["HOME"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          **options)  # fmt: skip
    return done.stdout


def set_up(folder):
    """Make users, folders and configuration files; the files are those in docs/hub.md."""
    make_readable({sys.base_prefix, sys.prefix, ROOT, Path(shutil.which("node")).resolve().parent}, folder / "stage")
    mount("-t", "tmpfs", "-o", "mode=755", "none", "/srv")
    make_users(folder)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    clone(Path("/home/teacher/course"))
    for place, text in re.findall(r"```python\n# (\S+)\n(.*?)```", (ROOT / "docs" / "hub.md").read_text(), re.S):
        path = Path(place.replace("~", "/home/teacher"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    Path("/srv/nbgrader/exchange").mkdir()
    Path("/srv/nbgrader/exchange").chmod(0o777)
    Path("/srv/course").mkdir()
    subprocess.run(["chown", "-R", "teacher:teacher", "/home/teacher", "/srv/course"], check=True)
    (folder / "walk_config.py").write_text(CONFIG)


# ---- the hub and its servers


class Hub:
    """A running hub: its REST interface and that of its users' servers."""

    def __init__(self):
        import requests

        self.session = requests.Session()
        self.session.headers["Authorization"] = f"token {TOKEN}"

    def ask(self, method, path, **options):
        """What the hub or a server answers."""
        answer = self.session.request(method, f"{HUB}/{path}", timeout=PATIENCE, **options)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text[:2000]}"
        return answer.json() if answer.content else None

    def socket(self, path):
        """A websocket of a user's server."""
        import websocket

        address = HUB.replace("http", "ws") + "/" + path
        return websocket.create_connection(address, header=[f"Authorization: token {TOKEN}"], timeout=PATIENCE)

    def is_up(self):
        with contextlib.suppress(OSError):
            return self.session.get(f"{HUB}/hub/api/", timeout=5).ok

    def start_servers(self):
        """Start the servers of all users together, and wait until they answer."""
        for user in IDS:
            self.ask("POST", f"hub/api/users/{user}/server")
        wait_until(lambda: all(self.ask("GET", f"hub/api/users/{user}")["servers"].get("", {}).get("ready")
                               for user in IDS), "three servers")  # fmt: skip

    def press(self, learner, button):
        """What a button of the Assignments panel does: fetch, submit, fetch_feedback."""
        data = {"course_id": "scaling-pytorch", "assignment_id": UNIT}
        answer = self.ask("POST", f"user/{learner}/assignments/{button}", data=data)
        assert answer["success"], answer
        return answer["value"]

    def type(self, *commands):
        """Type commands into one terminal of the teacher's; returns what is shown, which must end well."""
        name = self.ask("POST", "user/teacher/api/terminals", json={"cwd": "course"})["name"]
        socket, shown = self.socket(f"user/teacher/terminals/websocket/{name}"), ""
        path = f"{TOOLS / 'bin'}:{sys.prefix}/bin:$PATH"  # a login of Debian's finds its own Python alone
        line = " && ".join([f"export PATH={path}", "cd ~/course", *commands])
        with contextlib.closing(socket):
            socket.send(json.dumps(["stdin", f"{line}; echo ended with $((40 + $?))\r"]))
            while not (ended := re.search(r"ended with (\d+)", shown)):
                kind, text = json.loads(socket.recv())
                shown += text if kind == "stdout" else ""
        assert ended[1] == "40", shown
        return shown

    def run(self, learner, folder, *cells):
        """What cells of a notebook in the learner's `folder` print, run in a kernel of the learner's server."""
        request = {"name": PART, "type": "notebook", "path": f"{folder}/{PART}.ipynb", "kernel": {"name": "python3"}}
        begun = self.ask("POST", f"user/{learner}/api/sessions", json=request)
        socket, printed = self.socket(f"user/{learner}/api/kernels/{begun['kernel']['id']}/channels"), ""
        with contextlib.closing(socket):
            for cell in cells:
                header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "username": learner,
                          "session": "walk", "version": "5.3"}  # fmt: skip
                content = {"code": cell, "silent": False, "store_history": True}
                socket.send(json.dumps({"channel": "shell", "header": header, "parent_header": {}, "metadata": {},
                                        "content": content}))  # fmt: skip
                printed += self._until_idle(socket, header["msg_id"])
        self.ask("DELETE", f"user/{learner}/api/sessions/{begun['id']}")
        return printed

    def _until_idle(self, socket, asked):
        printed = ""
        while True:
            said = json.loads(socket.recv())
            content = said["content"]
            if said["parent_header"].get("msg_id") == asked:
                printed += content.get("text", "") + "\n".join(content.get("traceback", []))
                if content.get("execution_state") == "idle":
                    return printed


@contextlib.contextmanager
def running(folder):
    """A Hub that runs until the block ends."""
    env = os.environ | {"PATH": f"{TOOLS / 'bin'}:{os.environ['PATH']}"}
    with (folder / "hub.log").open("w") as log:
        process = subprocess.Popen([JUPYTERHUB, "-f", folder / "walk_config.py"], cwd="/srv/hub", env=env, stdout=log,
                                   stderr=log)  # fmt: skip
    hub = Hub()
    try:
        try:
            wait_until(hub.is_up, "JupyterHub", process)
        except AssertionError as error:
            log = (folder / "hub.log").read_text()
            assert 'File "/srv/' not in log, log  # the configuration of docs/hub.md is at fault, not the machine
            raise NotHere(f"{error}\n{log[-2000:]}") from None
        yield hub
    finally:
        process.kill()


# ---- what people do


def handed_in(learner):
    """The learner's notebook: ann's with her answer and text, bob's as he got it."""
    nb = nbformat.read(f"/home/{learner}/{UNIT}/{PART}.ipynb", as_version=4)
    if learner == "ann":
        cells = {cell.metadata.get("nbgrader", {}).get("grade_id"): cell for cell in nb.cells}
        (right,) = [cell.source for cell in read_cells(solutions_folder() / UNIT / f"{PART}.py")
                    if cell.marks.get("solution") == EXERCISE]  # fmt: skip
        cells[EXERCISE].source, cells[TEXT].source = right, ATTACK
    return nb


def release(hub):
    """The teacher makes the class's folder and releases the unit; learners cannot read the repository."""
    hub.type(f"python -m instructor release /srv/course/class --part 05/4 --ask {EXERCISE},{TEXT}")
    hub.type(f"nbgrader release_assignment {UNIT} --CourseDirectory.release_directory=/srv/course/class/notebooks")
    assert "denied" in as_user("bob", ["ls", "/home/teacher/course"])
    assert not list(Path("/srv/course/class").rglob("solutions"))


def fetch(hub):
    """Both learners fetch the unit."""
    for learner in LEARNERS:
        listed = {entry["assignment_id"]: entry["status"] for entry in hub.press(learner, "fetch")}
        assert listed == {UNIT: "fetched"}, listed


def solve(hub):
    """A learner solves the exercise; the check passes, and the answer is kept in her home."""
    nb = handed_in("ann")
    hub.ask("PUT", f"user/ann/api/contents/{UNIT}/{PART}.ipynb", json={"type": "notebook", "content": nb})
    cells = {cell.metadata.get("nbgrader", {}).get("grade_id"): cell.source for cell in nb.cells}
    said = hub.run("ann", UNIT, *(cells[name] for name in ("setup", EXERCISE, f"{EXERCISE}-visible")))
    assert f"{EXERCISE}: correct" in said, said
    assert list(Path("/home/ann/course-data/answers/ann").rglob(f"{EXERCISE}.json"))


def submit(hub):
    """Both submit; neither can see what the other one handed in."""
    for learner in LEARNERS:
        assert [entry["status"] for entry in hub.press(learner, "submit")][-1:] == ["submitted"]
    assert "denied" in as_user("bob", ["ls", "/srv/nbgrader/exchange/scaling-pytorch/inbound"])


def grade(hub):
    """The teacher collects and grades."""
    shown = hub.type(f"nbgrader collect {UNIT}", "python -m instructor grade submitted --release /srv/course/class")
    assert "2 submissions, 0 of them graded before" in shown, shown
    assert "ignored" not in shown, shown


def by_hand(hub, page, folder):
    """The teacher logs in with the browser and gives the learner's text three of its four points in Formgrader."""
    page.goto(f"{HUB}/user/teacher/formgrader/gradebook/{UNIT}/{PART}")
    page.locator("#username_input").fill("teacher")
    page.locator("#password_input").fill(PASSWORD)
    page.locator("input[type=submit], button[type=submit]").first.click()
    page.locator("table a").filter(has_text="Submission").first.wait_for()
    links = page.locator("tbody a").filter(has_text="Submission").evaluate_all("all => all.map(a => a.href)")
    for link in links:
        page.goto(link)
        if "my own data" not in page.locator("#notebook").first.inner_text():
            continue
        # Formgrader gives its fields this attribute when it has loaded the grades, and listens from then on
        page.locator(f"input[id='{TEXT}_extra_credit'][placeholder]").wait_for()
        score = page.locator(f"input.score[id='{TEXT}']")
        score.fill("3")
        with page.expect_response(lambda answer: "/api/grade/" in answer.url and answer.request.method == "PUT"):
            score.press("Tab")
        page.screenshot(path=folder / "pictures" / "formgrader.png")
        assert page.evaluate("window.ran") is None, "what a learner wrote ran in the teacher's browser"
        return
    raise AssertionError(f"no submission among {links} holds the learner's text")


def feed_back(hub):
    """Feedback goes out, and each learner gets the own page alone."""
    again = "python -m instructor grade submitted --release /srv/course/class --feedback"
    assert "2 submissions, 2 of them graded before" in hub.type(again, f"nbgrader release_feedback {UNIT}")
    for learner in LEARNERS:
        hub.press(learner, "fetch_feedback")
        (page,) = Path(f"/home/{learner}/{UNIT}/feedback").rglob("*.html")
        assert ("my own data" in page.read_text()) == (learner == "ann")


def read(hub, page, folder):
    """The learner opens the feedback from a file, where nothing would hold a script back; none runs."""
    (path,) = Path(f"/home/ann/{UNIT}/feedback").rglob("*.html")
    page.goto(path.as_uri(), wait_until="load")
    shown = page.locator("body").inner_text()
    page.screenshot(path=folder / "pictures" / "feedback.png")
    assert "my own data" in shown and re.search(r"Score: 5\.0\s*/\s*6\.0", shown), shown[:2000]
    assert page.evaluate("window.ran") is None, "what a learner wrote ran"


STEPS = (release, fetch, solve, submit, grade, by_hand, feed_back, read)


def walk(folder):
    """Do all steps, and print the name of each when it is done."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play, browser.started(play) as chromium:
        page = chromium.new_page(viewport={"width": 1100, "height": 1000})
        page.set_default_timeout(1000 * PATIENCE)
        try:
            set_up(folder)
        except subprocess.CalledProcessError as error:
            raise NotHere(f"this machine does not allow what a hub of its own takes: {error}") from None
        with running(folder) as hub:
            hub.start_servers()
            do(STEPS, hub, page, folder)


if __name__ == "__main__":
    main(walk)

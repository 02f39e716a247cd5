"""An instructor's first class: `python tests/workshop.py FOLDER` does what docs/workshop.md says, from a fresh clone.

The commands are those of the document, read from it; only the release asks less, so that it takes seconds, and
JupyterLab opens no browser.  What a person clicks in Formgrader is done in Chromium.  Prints a line per step; pictures
go to FOLDER/pictures.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys

import browser
import nbformat
from walks import PATIENCE, ROOT, clone, do, free_port, main, wait_until

from course.notebook.cells import read_cells

UNIT, PART, EXERCISE, TEXT = "05_batch_grouping", "4_no_padding_at_all", "block_mask", "your_data"
LESS = f" --part 05/4 --ask {EXERCISE},{TEXT}"
TEXTS = {"ann": "the waste of my protein data", "eve": "the lengths of my molecules"}
POINTS = {"ann": "3", "eve": "2"}
FIRST = "From the first folder to the feedback"  # begins the paragraph above the commands


def missing():
    """Why the path cannot be tried on this machine; None if it can."""
    if reason := browser.missing():
        return reason
    return None if shutil.which("bwrap") else "no bubblewrap on this machine: apt install bubblewrap"


def call(folder):
    """The command that walks, with all that it makes in FOLDER."""
    return [sys.executable, __file__, str(folder)]


def commands():
    """The commands of docs/workshop.md between the first folder and the feedback, without what they are for."""
    after = (ROOT / "docs" / "workshop.md").read_text().partition(FIRST)[2]
    lines = re.search(r"```sh\n(.*?)```", after, re.S)[1].splitlines()
    return [line.partition("#")[0].strip() for line in lines]


class Instructor:
    """A person with a fresh clone, a terminal in it, and a browser."""

    def __init__(self, folder, page):
        self.folder, self.page = folder, page
        self.clone, self.released = folder / "course", folder / "class"
        beside = os.path.dirname(sys.executable)
        own = {"HOME": "home", "COURSE_DATA": "data", "COURSE_ANSWERS": "answers"}
        self.env = os.environ | {name: str(folder / place) for name, place in own.items()}
        self.env |= {"PATH": f"{beside}:{os.environ['PATH']}", "PYTHONPATH": str(self.clone), "OMP_NUM_THREADS": "1"}
        self.activate, self.release, self.grade, self.lab, self.feedback = commands()

    def type(self, line):
        """What a command prints in the clone, which must end well."""
        done = subprocess.run(line, shell=True, cwd=self.clone, env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}"
        return done.stdout

    def picture(self, name):
        """Keep a picture of the page as FOLDER/pictures/NAME.png."""
        self.page.screenshot(path=self.folder / "pictures" / f"{name}.png")


def start(instructor):
    """The clone is fresh: no commands are known but those of the document."""
    clone(instructor.clone)
    assert instructor.activate == "source .venv/bin/activate"
    assert not (instructor.clone / "build").exists()


def release(instructor):
    """The class's folder is made."""
    said = instructor.type(instructor.release + LESS)
    assert "2 exercises and questions asked" in said, said


def hand_in(instructor):
    """Both answer in the notebook of the class; one writes the text below the cell that asks for it."""
    for learner, text in TEXTS.items():
        notebook = nbformat.read(instructor.released / "notebooks" / UNIT / f"{PART}.ipynb", as_version=4)
        ids = [cell.metadata.get("nbgrader", {}).get("grade_id") for cell in notebook.cells]
        cells = read_cells(ROOT / "solutions" / UNIT / f"{PART}.py")
        notebook.cells[ids.index(EXERCISE)].source = next(
            cell.source for cell in cells if cell.marks.get("solution") == EXERCISE
        )
        if learner == "ann":
            notebook.cells[ids.index(TEXT)].source = text
        else:
            notebook.cells.insert(ids.index(TEXT) + 1, nbformat.v4.new_markdown_cell(text))
        folder = instructor.clone / "submitted" / learner / UNIT
        folder.mkdir(parents=True)
        nbformat.write(notebook, folder / f"{PART}.ipynb")


def grade(instructor):
    """The class is graded; the texts wait for a person."""
    said = instructor.type(instructor.grade)
    assert "2 submissions, 0 of them graded before" in said, said


@contextlib.contextmanager
def formgrader(instructor):
    """JupyterLab of the document, with Formgrader open from its menu; the frame in which it is."""
    port = free_port()
    browser.set_up_lab(instructor.folder / "home")
    with (instructor.folder / "log").open("w") as log:
        line = f"exec {instructor.lab} --no-browser --port={port} --IdentityProvider.token=token"
        line += " --allow-root" * (os.geteuid() == 0)
        server = subprocess.Popen(line, shell=True, cwd=instructor.clone, env=instructor.env,
                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: browser.answers_at(f"{address}/api/status?token=token"), "JupyterLab", server)
        page = instructor.page
        page.goto(f"{address}/lab?token=token")
        page.get_by_role("menuitem", name="Nbgrader", exact=True).click()
        page.locator("[data-command='nbgrader:open-formgrader']").click()
        yield page.frame_locator("iframe")
    finally:
        server.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(20)
        server.kill()


def grade_by_hand(instructor):
    """Manual Grading has both texts; points go in, and Manage Submissions says that all is graded."""
    with formgrader(instructor) as frame:
        frame.get_by_role("link", name="Manual Grading").click()
        frame.get_by_role("link", name=UNIT).click()
        frame.get_by_role("link", name=PART).click()
        links = frame.locator("tbody a.name-hidden")
        links.nth(1).wait_for()
        instructor.picture("manual-grading")
        for number in range(2):
            links.nth(number).click()
            give_points(instructor, frame)
            frame.locator(".breadcrumb, #toolbar").get_by_role("link", name=PART).first.click()
        frame.get_by_role("link", name="Manage Assignments").click()
        frame.locator(".num-submissions a").click()
        frame.locator(".status").get_by_text("graded", exact=True).nth(1).wait_for()
        instructor.picture("manage-submissions")
        seen = frame.locator("tbody .status").all_inner_texts()
        assert seen == ["graded", "graded"], seen


def give_points(instructor, frame):
    """Find out whose text the open submission holds, and give its points."""
    # Formgrader gives its fields this attribute when it has loaded the grades, and listens from then on
    frame.locator(f"input[id='{TEXT}_extra_credit'][placeholder]").wait_for()
    shown = frame.locator("#notebook").first.inner_text()
    (learner,) = [name for name, text in TEXTS.items() if text in shown]
    score = frame.locator(f"input.score[id='{TEXT}']")
    score.fill(POINTS[learner])
    with instructor.page.expect_response(lambda answer: "/api/grade/" in answer.url and answer.request.method == "PUT"):
        score.press("Tab")
    instructor.picture(f"text-of-{learner}")


def feed_back(instructor):
    """The feedback shows the text and its points; grading again kept them."""
    said = instructor.type(instructor.feedback)
    assert "2 submissions, 2 of them graded before" in said, said
    for learner, text in TEXTS.items():
        path = instructor.clone / "feedback" / learner / UNIT / f"{PART}.html"
        instructor.page.goto(path.as_uri(), wait_until="load")
        shown = instructor.page.locator("body").inner_text()
        instructor.picture(f"feedback-{learner}")
        total = 2 + int(POINTS[learner])
        assert text in shown and re.search(rf"Score: {total}\.0\s*/\s*6\.0", shown), shown[:2000]


STEPS = (start, release, hand_in, grade, grade_by_hand, feed_back)


def walk(folder):
    """Do all steps, and print the name of each when it is done."""
    from playwright.sync_api import sync_playwright

    (folder / "pictures").mkdir()
    with sync_playwright() as play, browser.started(play) as chromium:
        page = chromium.new_page(viewport={"width": 1300, "height": 1000})
        page.set_default_timeout(1000 * PATIENCE)
        do_all = Instructor(folder, page)
        try:
            do(STEPS, do_all)
        except Exception:
            page.screenshot(path=folder / "failed.png")
            raise


if __name__ == "__main__":
    main(walk)

"""A learner at work in a real browser: `python tests/browser.py FOLDER` walks through parts 1 and 2 of unit 05.

JupyterLab, as `course lab` starts it, on a copy of the notebooks in FOLDER, driven through Chromium.  Every step waits
for what a learner would see, and prints a line.  Pictures go to FOLDER/pictures.  A program of its own,
so that a browser that hangs can be killed, and nothing of it stays in the process of the tests.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

import nbformat
from walks import PATIENCE, ROOT, NotHere, free_port, main, wait_until

from course.notebook.cells import read_cells
from course.notebook.registry import solutions_folder

UNIT, FIRST, SECOND, EXERCISE = "05_batch_grouping", "1_what_padding_costs", "2_few_groups", "pad_batch"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-sync"
FLAGS += " --disable-component-update --disable-dev-shm-usage"
FIGURES = (
    "figures.pipeline([9.0, 12.0], 5.0)",
    "figures.padding([1 + 7 * i % 61 for i in range(200)])",
    "figures.step_timeline([figures.Layer('a', 2.0, 20.0, 8.0), figures.Layer('b', 3.0, 20.0, 8.0)])",
    "figures.rate_map([256, 1024], [0.1, 0.2, 0.4, 0.8], [[0.5, 0.6, 0.7, 0.6], [0.3, 0.5, 0.6, 0.7]], rate=0.2)",
)
AGAIN = 5  # seconds after which a cell that did not start is run again
# all cells in the page at once, however long the notebook: a test looks for them by their number
SETTINGS = {"notebook-extension/tracker": '{"windowingMode": "none"}',
            "apputils-extension/notification": '{"fetchNews": "false"}'}  # fmt: skip


def chromium():
    """The path of a Chromium of this machine, or None."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def missing():
    """Why the browser cannot be tried on this machine; None if it can."""
    if not chromium():
        return "no Chromium on this machine: apt install chromium"
    return None if importlib.util.find_spec("playwright") else "playwright is not installed"


def call(folder):
    """The command that walks, with all that it makes in FOLDER."""
    return [sys.executable, __file__, str(folder)]


def answers():
    """(wrong, right) texts of the exercise: the reference, and the same with its mask inverted."""
    cells = read_cells(solutions_folder() / UNIT / f"{FIRST}.py")
    (right,) = [cell.source for cell in cells if cell.marks.get("solution") == EXERCISE]
    right = re.sub(r' *""".*?"""\n', "", right, flags=re.S)  # shown in README, where its lines are too long
    right = "\n".join(line for line in right.splitlines() if "### " not in line)
    wrong = right.replace("return x, mask", "return x, ~mask")
    assert wrong != right
    return wrong, right


def short_notebook(path):
    """Write the first part's setup and first exercise to `path`: what Validate runs in seconds."""
    book = nbformat.read(ROOT / "notebooks" / UNIT / f"{FIRST}.ipynb", as_version=4)
    ids = ("setup", EXERCISE, f"{EXERCISE}-visible", f"{EXERCISE}-hidden")
    book.cells = [cell for cell in book.cells if cell.metadata.get("nbgrader", {}).get("grade_id") in ids]
    nbformat.write(book, path)


def set_up_lab(home):
    """Write the settings of a JupyterLab that is driven by a program, for the user whose home is `home`."""
    for name, text in SETTINGS.items():
        path = home / f".jupyter/lab/user-settings/@jupyterlab/{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@contextlib.contextmanager
def jupyterlab(folder):
    """The address of a JupyterLab on FOLDER/notebooks, which ends with the block."""
    port = free_port()
    set_up_lab(folder / "home")
    own = {"HOME": "home", "COURSE_DATA": "data", "COURSE_ANSWERS": "answers"}
    env = os.environ | {name: str(folder / place) for name, place in own.items()}
    env |= {"JUPYTER_PATH": os.environ.get("TESTS_FORKS", "")}  # kernels that start in a moment (forks.py)
    env |= {"JUPYTER_TOKEN": "token", "COURSE_SCALE": "smoke", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    start = "from course.commands.lab import open_lab; open_lab(int(sys.argv[1]), browser=False, folder=sys.argv[2])"
    call = [sys.executable, "-c", f"import sys; {start}", str(port), str(folder / "notebooks")]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(call, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until(lambda: answers_at(f"http://127.0.0.1:{port}/api/status?token=token"), "JupyterLab", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(20)
        server.kill()


def answers_at(address):
    """True if something answers at `address`."""
    with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=10):
        return True


class Notebook:
    """A notebook open in JupyterLab; cells are known by their number in the file."""

    def __init__(self, page, address, path, folder):
        self.page, self.folder = page, folder
        page.goto(f"{address}/lab/tree/{path}?reset&token=token")
        idle(page)
        self.cells = page.locator(".jp-NotebookPanel:visible .jp-Notebook .jp-Cell")
        self.ids = [cell.metadata.get("nbgrader", {}).get("grade_id") for cell in nbformat.read(
            folder / "notebooks" / path, as_version=4).cells]  # fmt: skip

    def cell(self, name):
        """The cell that nbgrader calls `name`."""
        return self.cells.nth(self.ids.index(name))

    def run(self, cell, sees=None):
        """Run `cell` and wait for its new number; returns its outputs once they hold `sees`.

        A run that JupyterLab loses because the kernel is only just connected leaves "[ ]:"; then run it again.
        """
        prompt = cell.locator(".jp-InputPrompt")
        before, pressed, end = prompt.inner_text(), -AGAIN, time.monotonic() + PATIENCE
        while (now := prompt.inner_text()) == before or not re.search(r"\d", now):
            if time.monotonic() > end:
                raise TimeoutError(f"a cell was run and stays at {now}")
            if "*" not in now and time.monotonic() - pressed > AGAIN:
                cell.locator(".cm-content").click()
                self.page.keyboard.press("ControlOrMeta+Enter")
                pressed = time.monotonic()
            self.page.wait_for_timeout(100)
        outputs = cell.locator(".jp-OutputArea-output")
        if sees:
            outputs.filter(has_text=sees).first.wait_for()
        return outputs

    def type(self, cell, text):
        """Replace the text of `cell` by `text`."""
        cell.locator(".cm-content").click()
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.insert_text(text)

    def add_below(self, cell, text):
        """A new cell below `cell`, with `text` in it; the numbers of later cells are wrong from then on."""
        count = self.cells.count()
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("b")
        self.page.wait_for_function(
            "n => [...document.querySelectorAll('.jp-Notebook')].find(e => e.offsetParent)"
            ".querySelectorAll('.jp-Cell').length == n", arg=count + 1)  # fmt: skip
        new = self.cells.nth(
            self.cells.evaluate_all("cells => cells.findIndex(c => c.classList.contains('jp-mod-active'))")
        )
        self.type(new, text)
        return new

    def picture(self, name, *cells):
        """Keep a picture of `cells`, from the first to the last, as FOLDER/pictures/NAME.png."""
        cells[0].scroll_into_view_if_needed()
        cells[-1].scroll_into_view_if_needed()
        boxes = [cell.bounding_box() for cell in cells]
        top, bottom = min(box["y"] for box in boxes), max(box["y"] + box["height"] for box in boxes)
        top = max(top, 0)
        clip = {"x": boxes[0]["x"], "y": top, "width": boxes[0]["width"], "height": max(bottom - top, 1)}
        self.page.screenshot(path=self.folder / "pictures" / f"{name}.png", clip=clip)


def say(text):
    """Print a step that was seen."""
    print(text, flush=True)


def solve(page, address, folder):
    """Part 1: a wrong answer is diagnosed, a right one accepted, progress shows it; a restart keeps it."""
    wrong, right = answers()
    book = Notebook(page, address, f"{UNIT}/{FIRST}.ipynb", folder)
    book.run(book.cell("setup"), "torch")
    (folder / "pictures").mkdir(exist_ok=True)
    page.screenshot(path=folder / "pictures" / "lab.png", clip={"x": 0, "y": 0, "width": 1100, "height": 1020})
    answer, check = book.cell(EXERCISE), book.cell(f"{EXERCISE}-visible")
    book.type(answer, wrong)
    book.run(answer)
    book.run(check, "The mask is inverted")
    book.picture("wrong", answer, check)
    say("a wrong answer is diagnosed")
    book.type(answer, right)
    book.run(answer)
    book.run(check, f"{EXERCISE}: correct")
    say("the right one is correct")
    progress = book.add_below(check, 'course.progress("05")')
    book.run(progress, "Batch grouping").locator("table").first.wait_for()
    book.picture("progress", progress)
    say("progress shows it")
    restart(page)
    book.run(book.cell("setup"), "torch")
    book.type(progress, f"pad_now = course.solved(check.{EXERCISE})")
    book.run(progress, "your answer of")
    say("a new kernel takes the kept answer")
    page.keyboard.press("ControlOrMeta+s")


def idle(page):
    """Wait until the kernel of the notebook that is shown is connected and has nothing to do."""
    page.locator(".jp-NotebookPanel:visible .jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()
    page.locator("#jp-bottom-panel, #jp-main-statusbar").get_by_text("| Idle").first.wait_for()


def take_kernel(page):
    """Take the kernel that JupyterLab offers, whenever it asks for one: if a cell is run before it is connected."""
    asks = page.locator(".jp-Dialog").filter(has_text="Select Kernel")
    page.add_locator_handler(asks, lambda: asks.locator(".jp-mod-accept").click())


def restart(page):
    """Restart the kernel of the notebook that is shown, clear its outputs, and wait until it is idle."""
    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.locator("[data-command='kernelmenu:restart-and-clear']").click()
    page.locator(".jp-Dialog button.jp-mod-accept").click()
    page.locator(".jp-Dialog").first.wait_for(state="detached")
    idle(page)


def carry_on(page, address, folder):
    """Part 2 continues with the answer from part 1."""
    book = Notebook(page, address, f"{UNIT}/{SECOND}.ipynb", folder)
    setup = book.cell("setup")
    book.run(setup, "torch")
    asks = book.add_below(setup, f"pad_now = course.solved(check.{EXERCISE})")
    book.run(asks, "from part 1")
    say("part 2 takes the answer over")


def validate(page, address, folder):
    """nbgrader's Validate says which check fails, and that all pass."""
    wrong, right = answers()
    book = Notebook(page, address, "short.ipynb", folder)
    for text, seen in ((wrong, ".validation-failed"), (right, ".validation-success")):
        book.type(book.cell(EXERCISE), text)
        page.keyboard.press("ControlOrMeta+s")
        page.locator(".jp-NotebookPanel:visible .jp-DirtyIndicator, .lm-TabBar-tab.jp-mod-dirty").first.wait_for(
            state="detached")  # fmt: skip
        page.locator("jp-button.validate-button, .validate-button").first.click()
        page.locator(f"#validation-message{seen}").wait_for()
        page.locator(".jp-Dialog .jp-mod-accept").first.click()
        page.locator(".jp-Dialog").first.wait_for(state="detached")
        say(f"Validate says {seen[12:]}")


def play(page, address, folder):
    """The figures to play with: each is drawn, and follows when its first slider is moved."""
    book = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    book.cells = [nbformat.v4.new_code_cell(f"from course import figures\n{call}", metadata={}) for call in FIGURES]
    nbformat.write(book, folder / "notebooks" / "figures.ipynb")
    book = Notebook(page, address, "figures.ipynb", folder)
    for number, call in enumerate(FIGURES):
        cell = book.cells.nth(number)
        book.run(cell)
        drawn = cell.locator("[data-total]")
        drawn.wait_for()
        before = drawn.get_attribute("data-total")
        cell.locator("input[type=range]").first.click(position={"x": 3, "y": 8})
        cell.locator(f"[data-total]:not([data-total='{before}'])").wait_for()
        book.picture(f"figure-{number}", cell)
        say(f"{call.partition('(')[0]} follows its slider")


@contextlib.contextmanager
def started(play):
    """A Chromium that ends with the block.  Raises: NotHere if none starts."""
    from playwright.sync_api import Error

    try:
        found = play.chromium.launch(executable_path=chromium(), args=FLAGS.split())
    except Error as error:
        raise NotHere(f"no browser: {str(error).splitlines()[0]}") from None
    with contextlib.closing(found):
        yield found


def walk(folder, steps=(solve, carry_on, validate, play)):
    """Do `steps` in a JupyterLab on copies of the notebooks in `folder`."""
    from playwright.sync_api import sync_playwright

    shutil.copytree(ROOT / "notebooks" / UNIT, folder / "notebooks" / UNIT)
    short_notebook(folder / "notebooks" / "short.ipynb")
    with sync_playwright() as play, started(play) as browser, jupyterlab(folder) as address:
        for step in steps:
            page = browser.new_page(viewport={"width": 1100, "height": 1400})
            page.set_default_timeout(1000 * PATIENCE)
            take_kernel(page)
            try:
                step(page, address, folder)
            except Exception:
                page.screenshot(path=folder / "failed.png")
                raise
            page.close(run_before_unload=False)


if __name__ == "__main__":
    main(walk)

"""Pages that show submissions, in a real browser: nothing of a learner's runs there, and no request leaves for him."""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys

import browser
import pytest
from markup import hostile
from nbgrader.api import Gradebook
from submissions import UNIT, enter, graded, part_of, with_text
from walks import ROOT, free_port, wait_until

from instructor.grading import feedback

pytestmark = [
    pytest.mark.skipif(not browser.chromium(), reason="no Chromium on this machine: apt install chromium"),
    pytest.mark.skipif(not importlib.util.find_spec("playwright"), reason="playwright is not installed"),
]
NOTES = "for (const name of ['steal', 'alert']) window[name] = () => window.ran = true"
EVIL = "evil.example"


def visit(addresses):
    """({address: what it asked for}, addresses where something ran) when Chromium opens one after the other."""
    from playwright.sync_api import sync_playwright

    sent, ran = {address: set() for address in addresses}, []
    with sync_playwright() as play, browser.started(play) as chromium:
        for address in addresses:
            page = chromium.new_page()
            page.add_init_script(NOTES)
            page.on("request", lambda request, address=address: sent[address].add(request.url))
            page.route(lambda url: not url.startswith(("file:", "http://127.0.0.1")), lambda route: route.abort())
            answer = page.goto(address, wait_until="load", timeout=120_000)
            assert answer.ok, f"{address}: {answer.status}"
            for link in page.locator(".output a, .rendered_html a, .jp-RenderedMarkdown a").all():
                with contextlib.suppress(Exception):  # one that cannot be seen
                    if (link.get_attribute("href") or "").lower().startswith(("javascript:", "data:")):
                        link.click(timeout=1000)
            if page.evaluate("window.ran"):
                ran.append(address)
            page.close()
    return sent, ran


@contextlib.contextmanager
def formgrader(root):
    """The address of nbgrader's formgrader on the course folder `root`, which ends with the block."""
    port = free_port()
    shutil.copy(ROOT / "nbgrader_config.py", root)
    options = {"port": port, "root_dir": root, "allow_root": True, "open_browser": False, "token": "",
               "jpserver_extensions": {"nbgrader.server_extensions.formgrader": True}}  # fmt: skip
    call = [sys.executable, "-m", "jupyter_server", *(f"--ServerApp.{name}={value}" for name, value in options.items())]
    env = os.environ | {"PYTHONPATH": str(ROOT), "JUPYTER_CONFIG_DIR": str(root / "none"), "HOME": str(root)}
    with (root / "log").open("w") as log:
        server = subprocess.Popen(call, cwd=root, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until(lambda: browser.answers_at(f"http://127.0.0.1:{port}/api/status"), "formgrader", server)
        yield f"http://127.0.0.1:{port}/formgrader"
    finally:
        server.kill()
        server.wait()


def test_feedback_and_formgrader_run_nothing_and_ask_for_nothing(course):
    enter(course, graded("honest", text="an answer"), hostile("mallory"))
    feedback.write_pages(UNIT, course)
    honest, feedbacks = (
        [page.as_uri() for page in (course / "feedback" / who / UNIT).iterdir()] for who in ("honest", "mallory")
    )
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        parts = [with_text(), part_of("scaled_lr")]
        numbers = [book.find_submission_notebook(part, UNIT, "mallory").id for part in parts]
    with formgrader(course) as address:
        places = [f"submissions/{number}/?index=0" for number in numbers]
        places += ["manage_students", f"manage_submissions/{UNIT}", f"gradebook/{UNIT}", f"gradebook/{UNIT}/{parts[0]}"]
        sent, ran = visit([*honest, *feedbacks, *(f"{address}/{place}" for place in places)])
    assert ran == [] and not [url for urls in sent.values() for url in urls if EVIL in url]
    of_honest, of_hostile = (set().union(*(sent[page] for page in pages)) - {*pages} for pages in (honest, feedbacks))
    assert of_hostile <= of_honest
    assert sum("/submissions/" in url for urls in sent.values() for url in urls) >= 2

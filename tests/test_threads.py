"""Who waits for whom: a wait for what never comes ends early, one for what is under way does not."""

import os
import threading
import time

import pytest

from course.engine.probing.threads import Meeting, wait_until

pytestmark = [
    pytest.mark.check,
    pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="tells who waits on Linux alone"),
]
FOR_EVER = 600.0  # seconds: longer than a test may take


def started(run):
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_a_thread_that_waits_for_ever_is_not_waited_for():
    never = threading.Event()
    thread = started(never.wait)
    assert not wait_until(lambda: not thread.is_alive(), lambda: [thread], FOR_EVER)
    never.set()


def test_threads_that_wait_for_one_that_works_are_waited_for():
    over = threading.Event()

    def works():
        for _ in range(30):  # together longer than all must stand still
            time.sleep(0.02)
        over.set()

    threads = [started(works), started(over.wait)]
    assert wait_until(over.is_set, lambda: threads, FOR_EVER)


def test_threads_meet_or_are_told_that_nobody_comes():
    two, alone = Meeting(2), Meeting(2)
    threads = [started(two.wait) for _ in range(2)]
    for thread in threads:
        thread.join()
    assert two.met is True and alone.wait() is False

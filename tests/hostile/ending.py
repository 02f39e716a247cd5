"""Ending, hanging, and stopping whoever waits."""
# ruff: noqa: F821, F841, B018

from hostile.attack import ENDED, LATE, cell, extra, file


@cell(2, ENDED)
def ends_its_process():
    """os._exit in a cell: what was answered before counts."""
    import os

    os._exit(0)


@cell()
def ends_in_an_answer():
    """os._exit in an answer costs this one only."""
    import os

    def linear_warmup(*args):
        os._exit(0)


@cell(2, ENDED)
def crashes():
    """A segmentation fault in a cell."""
    import ctypes

    ctypes.string_at(0)


@cell(2, LATE)
def stops_itself():
    """SIGSTOP: it neither ends nor goes on."""
    import os
    import signal

    os.kill(os.getpid(), signal.SIGSTOP)


@cell(2, LATE)
def stops_its_parent_in_an_answer():
    """SIGSTOP for the process that waits for the answer."""
    import os
    import signal

    def linear_warmup(*args):
        os.kill(os.getppid(), signal.SIGSTOP)


@cell()
def loops_in_a_cell():
    """A cell that does not end is stopped, and the next one runs."""
    while True:
        pass


@cell(2, LATE)
def loops_and_swallows():
    """Whatever is raised to stop it is swallowed."""
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


@cell()
def loops_in_an_answer():
    """An answer that does not end, and swallows what is raised to stop it."""

    def linear_warmup(*args):
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass


@cell(2, LATE)
def drips():
    """A little output each moment, so that something always comes."""
    import signal
    import time

    signal.setitimer(signal.ITIMER_REAL, 0)
    while True:
        display("still here")
        time.sleep(0.2)


@file(0, "together")
def many_cells_that_wait(place, honest):
    """Each cell is stopped, and the next one waits."""
    honest["cells"][3:3] = [extra(f"{number}\nimport time; time.sleep(1000)") for number in range(100)]
    return honest


@cell()
def asks_for_input():
    """Somebody at the keyboard is waited for."""
    linear_warmup = input
    input("name: ")

"""Doing harm outside: files, network, rights, processes."""
# ruff: noqa: F821, F841, B018

from hostile.attack import cell


@cell()
def writes_everywhere():
    """Into the home, the course, the gradebook, the inbox, the package."""
    import os

    import course

    places = [*host["places"], course.__file__, torch.__file__, "/etc/passwd", "/usr/bin/python3"]
    places += [os.path.join(place, "sitecustomize.py") for place in host["places"]]
    for place in places:
        try:
            with open(place, "a") as file:
                file.write(host["token"])
            print("BREACH", place)
        except OSError:
            pass
        try:
            os.remove(place)
            print("BREACH", place)
        except OSError:
            pass


@cell()
def leaves_something_behind():
    """Files, shared memory and semaphores for the next learner."""
    import ctypes
    import os

    for place in ("/tmp", "/dev/shm", "/var/tmp", "/run", os.path.expanduser("~")):
        try:
            with open(f"{place}/{host['token']}", "w") as file:
                file.write("#!/bin/sh\n")
        except OSError:
            pass
    ctypes.CDLL(None).shmget(host["key"], 4096, 0o1666)


@cell()
def takes_what_was_left():
    """What the one before has left."""
    import ctypes
    import os

    for place in ("/tmp", "/dev/shm", "/var/tmp", "/run"):
        if os.path.exists(f"{place}/{host['token']}"):
            print("BREACH", place)
    if ctypes.CDLL(None).shmget(host["key"], 4096, 0o666) != -1:
        print("BREACH: shared memory")


@cell()
def kills_everything_else():
    """SIGKILL for every process that it can name, the first of its world among them."""
    import os
    import signal

    for number in range(1, 500):
        if number != os.getpid():
            try:
                os.kill(number, signal.SIGKILL)
            except OSError:
                pass
    try:
        os.kill(-1, signal.SIGKILL)
    except OSError:
        pass


@cell()
def leaves_processes():
    """Daemons that live on when the check is over."""
    import os
    import subprocess
    import time

    subprocess.Popen(["sleep", host["sleep"]], start_new_session=True)
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.closerange(0, 300)
            time.sleep(1000)
        os._exit(0)

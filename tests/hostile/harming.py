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
def calls_the_network():
    """TCP, UDP and sockets of the machine, also those without a file."""
    import socket

    socket.setdefaulttimeout(0.3)
    for address in host["addresses"]:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET, kind) as client:
                try:
                    client.connect((address, host["port"]))
                    client.send(b"BREACH")
                    if kind == socket.SOCK_STREAM:
                        print("BREACH", address)
                except OSError:
                    pass
    for address in (host["socket"], "\0" + host["token"]):
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(address)
                client.send(b"BREACH")
                print("BREACH", address)
            except OSError:
                pass


@cell()
def becomes_root():
    """Every way to more rights that a user may try."""
    import ctypes
    import resource
    import subprocess

    libc = ctypes.CDLL(None, use_errno=True)
    tries = {
        "user namespace": lambda: libc.unshare(0x10000000),
        "mount namespace": lambda: libc.unshare(0x00020000),
        "mount": lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None),
        "ptrace": lambda: libc.ptrace(16, 1, 0, 0),
        "chroot": lambda: libc.chroot(b"/tmp"),
        "setuid": lambda: libc.setuid(0),
        "setgroups": lambda: libc.setgroups(1, (ctypes.c_uint * 1)(0)),
        "keyring of others": lambda: libc.syscall(250, 0, 0, 0) if False else -1,
        "host name": lambda: libc.sethostname(b"x", 1),
        "clock": lambda: libc.clock_settime(0, (ctypes.c_long * 2)(0, 0)),
        "reboot": lambda: libc.reboot(0),
    }
    for name, attempt in tries.items():
        if attempt() != -1:
            print("BREACH", name)
    for name, kind in (("files", resource.RLIMIT_NOFILE), ("processes", resource.RLIMIT_NPROC)):
        try:
            resource.setrlimit(kind, (10**6, 10**6))
            print("BREACH", name)
        except (ValueError, OSError):
            pass
    for path in ("/proc/sys/kernel/core_pattern", "/proc/self/oom_score_adj", "/sys/power/state"):
        try:
            with open(path, "w") as file:
                file.write("-1000")
            print("BREACH", path)
        except OSError:
            pass
    try:
        with open("/proc/self/oom_score_adj", "w") as file:  # no less likely to be ended than it was made
            file.write("999")
        print("BREACH: the score by which Linux chooses")
    except OSError:
        pass
    for call in ("su -c id", "sudo -n id", "unshare -r id", "bwrap --dev-bind / / --uid 0 id", "nsenter -t 1 -a id"):
        done = subprocess.run(call.split()[:1] and ["sh", "-c", call], stdin=subprocess.DEVNULL, capture_output=True)
        print("BREACH" * (b"uid=0" in done.stdout), call)


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

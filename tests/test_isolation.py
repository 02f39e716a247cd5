"""What a process in a jail is, may and can see."""

import copy
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from course.system.folders import ROOT
from instructor.jail import isolation, memory
from instructor.jail.client import Jail
from instructor.jail.errors import JailError
from instructor.jail.limits import JailLimits, ProcessLimits, SharedLimits

pytestmark = [
    pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed here"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
ASK = """
import ctypes, json, os, pathlib, resource, socket

def attempt(call):
    try:
        return call()
    except OSError as error:
        return type(error).__name__

import course
package = os.path.dirname(course.__file__)
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
libc = ctypes.CDLL(None)
print(json.dumps({
    "uid": os.getuid(), "gid": os.getgid(), "capabilities": int(status["CapEff"], 16), "no_new": status["NoNewPrivs"],
    "seccomp": status["Seccomp"], "processes": sum(name.isdecimal() for name in os.listdir("/proc")),
    "interfaces": [name for _, name in socket.if_nameindex()], "host": os.uname().nodename,
    "memory": [libc.memfd_create(b"x", 0), libc.syscall(447, 0), libc.shmget(0, 4096, 0o1600), libc.msgget(0, 0o1600),
               libc.syscall(240, b"x", 0o102, 0o600, 0)],
    "namespace": libc.unshare(0x10000000),
    "prctl": [libc.prctl(4, n, 0, 0, 0) for n in (0, 1)] + [libc.prctl(15, b"x")],
    "limits": [resource.getrlimit(kind) for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_CORE)],
    "descriptors": [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2],
    "writes": {place: attempt(lambda: pathlib.Path(f"{place}/x").write_text("x")) for place in ("/tmp", package, "/")},
    "answers": os.environ["COURSE_ANSWERS"], "home": os.environ["HOME"],
    "ours": sorted(os.listdir(os.path.dirname(package))),
    "package": sorted(str(path.relative_to(package)) for path in pathlib.Path(package).rglob("*.py")),
}))
"""


def run(jail, source, seconds=20):
    """What a cell prints."""
    jail.send({"do": "cell", "source": textwrap.dedent(source), "seconds": seconds})
    printed = ""
    while "output" in (message := jail.receive(seconds + 20)):
        printed += message["output"].get("text", "") + message["output"].get("evalue", "")
    return printed


@pytest.fixture(scope="module")
def seen(zygote):
    with Jail(zygote) as jail:
        return json.loads(run(jail, ASK))


def test_it_is_nobody_without_rights(seen):
    assert (seen["uid"], seen["gid"], seen["capabilities"]) == (isolation.NOBODY, isolation.NOBODY, 0)
    assert (seen["no_new"], seen["seccomp"], seen["namespace"]) == ("1", "2", -1)


def test_of_the_course_it_can_read_what_a_class_gets_and_nothing_else(seen):
    """course/, whole, and where it lies in the repository the environment that Python runs in."""
    environment = Path(sys.prefix).relative_to(ROOT).parts[:1] if Path(sys.prefix).is_relative_to(ROOT) else ()
    assert seen["ours"] == sorted({"course", *environment})
    assert seen["package"] == sorted(str(path.relative_to(ROOT / "course")) for path in (ROOT / "course").rglob("*.py"))


def test_it_sees_its_own_processes_network_and_name(seen):
    assert seen["processes"] < 10 and seen["interfaces"] == ["lo"] and seen["host"] == "jail"


def test_memory_that_belongs_to_nobody_is_refused_and_limits_are_set(seen):
    processes = ProcessLimits().processes
    assert seen["memory"] == [-1] * 5 and seen["prctl"] == [-1, -1, 0], "nor can it hide from the grader"
    assert seen["limits"] == [[processes, processes], [0, 0]]


def test_with_cuda_it_may_do_what_the_driver_of_nvidia_needs(zygote):
    zygote.wait()  # before it is copied, or both would
    with_cuda = copy.copy(zygote)
    with_cuda.cuda = True
    thread = "/proc/self/task/{os.getpid()}/comm"
    named = f"""
        import os
        open(f"{thread}", "w").write("cuda")
        print(open(f"{thread}").read(), os.memfd_create("x") > 2)"""
    with Jail(with_cuda) as jail:
        assert run(jail, named) == "cuda\n True\n"
        assert json.loads(run(jail, ASK))["memory"][1:] == [-1] * 4
    with Jail(zygote) as jail:
        assert "Read-only" in run(jail, named)


def test_it_holds_the_channel_and_nothing_else_of_the_grader(seen):
    assert isolation.CHANNEL in seen["descriptors"]
    assert not [number for number in seen["descriptors"] if number > isolation.CHANNEL]


def test_it_writes_in_tmp_only_and_keeps_no_answers(seen):
    assert seen["writes"] == {"/tmp": 1, str(ROOT / "course"): "OSError", "/": "OSError"}
    assert (seen["answers"], seen["home"]) == ("off", "/tmp")


def test_a_check_leaves_nothing_in_the_temporary_folders_of_the_next(zygote):
    with Jail(zygote) as jail:
        run(jail, """
            import os, pathlib
            pathlib.Path("/tmp/mine").mkdir()
            def scaled_lr(*args):
                pathlib.Path("/tmp/seen").write_text(str(args))
                pathlib.Path("/tmp/folder").mkdir(exist_ok=True)
                pathlib.Path("/dev/shm/link").symlink_to("/tmp/mine")
                pathlib.Path("/tmp/mine/called").touch()
            """)  # fmt: skip
        request = {"unit": "03_large_batch", "exercise": "scaled_lr", "answer": "scaled_lr", "is_class": False}
        jail.send({"do": "check", "seed": 1, "seconds": 20, "limit": 20} | request)
        assert "facts" in jail.receive(40)
        left = run(jail, "print(*(name for place in ('/tmp', '/tmp/mine', '/dev/shm') for name in os.listdir(place)))")
        assert {"mine", "called"} <= set(left.split()) and not {"seen", "folder", "link"} & set(left.split())


def test_a_message_beyond_its_limit_ends_the_jail(zygote):
    limits = JailLimits(SharedLimits(message_bytes=1000))
    with Jail(zygote, limits) as jail, pytest.raises(JailError, match="more than 1,000 bytes"):
        run(jail, "print('x' * 5000)")


LIMIT = 2**29  # of memory: twice what a process has that has done nothing yet
LITTLE = JailLimits(SharedLimits(memory_bytes=LIMIT))
HELD = {  # `large` bytes
    "a shared mapping": """
        shared = mmap.mmap(-1, large)
        while shared.tell() < large:
            shared.write(bytes(2**20))
        """,
    "files": """
        for place in ("/tmp", "/dev/shm"):
            with open(f"{place}/large", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, large // 2)
        """,
    "empty files": """
        for number in range(large // 2**14):
            os.close(os.open(f"/tmp/{number}", os.O_CREAT | os.O_WRONLY))
        """,
    "a program that nobody may read, whose process only root may look into": """
        shutil.copy(os.path.realpath(sys.executable), "/tmp/python")
        os.chmod("/tmp/python", 0o111)
        code = f"import time; taken = b'x' * {large}; time.sleep(1000)"
        subprocess.run(["/tmp/python", "-c", code], env=os.environ | {"PYTHONHOME": sys.base_prefix})
        """,
    "children whose parents have ended": """
        for _ in range(9):
            if not os.fork():
                if not os.fork():
                    taken = b"x" * (large // 8)
                    time.sleep(1000)
                os._exit(0)
        """,
}


@pytest.mark.skipif(os.getuid() != 0, reason="only root may chroot")
def test_grading_refuses_a_chroot_because_its_jails_would_open_on_the_whole_system(tmp_path):
    code = "from instructor.jail.bubblewrap import refuse_without_bubblewrap as refuse; refuse()"
    inside = f"mount --rbind / {tmp_path} && exec chroot {tmp_path} env -C {ROOT} {sys.executable} -c '{code}'"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", inside], capture_output=True, text=True)
    assert "not permitted here: unshare: " in done.stderr


@pytest.mark.parametrize("way", HELD)
def test_memory_ends_a_jail_however_it_is_held(way, zygote, monkeypatch):
    monkeypatch.setattr(memory, "FILE_OVERHEAD_BYTES", 2**14)  # or it would be hundreds of thousands of files
    begin = f"import mmap, os, shutil, subprocess, sys, time\nlarge = {LIMIT * 9 // 8}\n"
    with Jail(zygote, LITTLE) as jail, pytest.raises(JailError, match="GiB of memory"):
        run(jail, begin + textwrap.dedent(HELD[way]) + "while True:\n    time.sleep(1)\n", 100)


def test_what_is_shared_with_the_zygote_does_not_count(zygote):
    """Each fork is as large as the zygote: their sum is far beyond the limit, what they hold is not."""
    with Jail(zygote, LITTLE) as jail:
        numbers = "[os.fork() or time.sleep(1000) for _ in range(20)]"
        assert run(jail, f"import os, time\nprint(len({numbers}), time.sleep(1))", 100) == "20 None\n"

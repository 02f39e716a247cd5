"""Python programs that start in a moment: forks of one process that has imported what most of them import.

A kernel takes five seconds of CPU before its first cell, nbgrader four before its first notebook, a rank four before
its first step, nearly all for imports, and the tests start some hundred and fifty.  conftest.py starts the server, and
its folder is in JUPYTER_PATH, so that nbval, nbgrader and nbclient find there the kernel "python3", whose
`sys.executable` starts such programs, too.  `python` gives the words that start any other module, and after
`warm_fork_servers` the fork server of multiprocessing is one of them.  All start the client, which lives as long as its
program; each ends with the other.
"""

import contextlib
import fcntl
import gc
import importlib
import json
import multiprocessing.util
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import traceback
import types

IMPORTS = "torch", "torchvision", "matplotlib.pyplot", "ipykernel.kernelapp", "nbgrader.apps.nbgraderapp"
FOLDER, ADDRESS, PYTHON = "TESTS_FORKS", "socket", "python"  # the variable that names the folder, what lies in it
FREE = 200  # descriptors from here on are nobody's


def start(folder):
    """Start the server, which ends when its standard input is closed; its kernel is found by JUPYTER_PATH."""
    address, path = str(folder / ADDRESS), folder / PYTHON
    words = shlex.join([sys.executable, "-IS", __file__, "client", address])
    path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    path.chmod(0o755)
    spec = {"display_name": "Python 3", "language": "python", "interrupt_mode": "message"}
    spec["argv"] = [str(path), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel = folder / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text(json.dumps(spec))
    os.environ[FOLDER] = str(folder)
    os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("JUPYTER_PATH")]))
    env = os.environ | {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}  # read by the import
    return subprocess.Popen([sys.executable, __file__, "server", address], stdin=subprocess.PIPE, env=env)


def executable():
    """The path of a Python whose programs start in a moment; of the usual one on a system without `pidfd_open`."""
    folder = os.environ.get(FOLDER)
    return os.path.join(folder, PYTHON) if folder else sys.executable


def python(module, *arguments):
    """The words that do what `python -m MODULE ARGUMENTS` does, sooner."""
    return [executable(), "-m", module, *arguments]


def warm_fork_servers():
    """From now on the fork server of multiprocessing is such a program, in this process and its forks."""
    begin = multiprocessing.util.spawnv_passfds

    def spawn(path, words, descriptors):
        if "multiprocessing.forkserver" in words[-1] and FOLDER in os.environ:
            path = os.fsencode(executable())
            words = [path, f"--keep={','.join(map(str, descriptors))}", "-c", words[-1]]
        return begin(path, words, descriptors)

    multiprocessing.util.spawnv_passfds = spawn


def server(address):
    """Fork a program for every client; the first one waits for the imports."""
    from course.notebook.registry import package_of, units

    del sys.path[0]  # tests/
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # read by the import of ipykernel
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for the programs
    names = *IMPORTS, "course.parallel.distributed", *(f"course.checks.{package_of(unit)}" for unit in units())
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(100)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            client, _ = listener.accept()
            for name in names:
                importlib.import_module(name)
            gc.freeze()
            if not os.fork():
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                if not (number := os.fork()):
                    program(client)
                code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
                with contextlib.suppress(BrokenPipeError):  # the client was killed
                    client.sendall(bytes([code % 256]))
                os._exit(0)
            client.close()


def program(client):
    """Become the program that `client` asks for, in its folder and environment, with its descriptors."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    request, descriptors, _, _ = socket.recv_fds(client, 2**20, 10)
    words, folder, environment, numbers = json.loads(request)
    client, *given = (fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, FREE) for number in (client.detach(), *descriptors))
    for number, descriptor in zip((0, *numbers), (os.open(os.devnull, os.O_RDONLY), *given), strict=True):
        os.dup2(descriptor, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = ["", *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    threading.Thread(target=lambda: os.read(client, 1) or os._exit(1), daemon=True).start()  # the client was killed
    if threads := environment.get("OMP_NUM_THREADS"):  # read by the import of torch
        sys.modules["torch"].set_num_threads(int(threads))
    warm_fork_servers()
    code = 1
    try:
        run(*words)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)  # to take apart what is shared with the server would copy all of it


def run(first, *words):
    """Run what `python FIRST WORDS` runs: a script, the module after -m, or the text after -c."""
    if first == "-u":
        sys.stdout.reconfigure(write_through=True)
        run(*words)
    elif first == "-m":
        sys.argv = [*words]
        if words[0] == "ipykernel_launcher":
            sys.executable = executable()
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv, sys.modules["__main__"] = ["-c", *words[1:]], types.ModuleType("__main__")
        exec(words[0], vars(sys.modules["__main__"]))
    else:
        sys.argv, sys.path[0] = [first, *words], os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")


# modules that read their stdin, and whose C library reads the environment when the process starts
OWN_PROCESS = ("course.measure.fresh_memory",)


def client(address, *words):
    """Ask for what `python WORDS` runs, if the first word is -u, -m, -c or a script, else run it; end as it ends.

    Before them, --keep=3,4 names descriptors that it uses.
    """
    numbers = [1, 2]
    if words[0].startswith("--keep="):
        numbers += map(int, words[0][7:].split(","))
        words = words[1:]
    is_own = words[0] == "-m" and words[1] in OWN_PROCESS
    if is_own or words[0].startswith("-") and words[0] not in ("-u", "-m", "-c"):
        os.execv(sys.executable, [sys.executable, *words])
    with socket.socket(socket.AF_UNIX) as to:
        to.connect(address)
        socket.send_fds(to, [json.dumps([words, os.getcwd(), dict(os.environ), numbers]).encode()], numbers)
        code = (to.recv(1) or b"\1")[0]
    if code > 256 - signal.NSIG:
        signal.signal(256 - code, signal.SIG_DFL) if 256 - code != signal.SIGKILL else None
        os.kill(os.getpid(), 256 - code)
    sys.exit(code)


if __name__ == "__main__":
    {"server": server, "client": client}[sys.argv[1]](*sys.argv[2:])

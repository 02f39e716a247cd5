"""Python programs that start in a moment: forks of one process that has imported what most of them import.

A kernel takes five seconds of CPU before its first cell, nbgrader four before its first notebook, nearly all for
imports, and the tests start some eighty.  conftest.py starts the server and names the folder in JUPYTER_PATH, so that
nbval, nbgrader and nbclient find there the kernel "python3".  `python` gives the words that start any other module.
All start the client, which lives as long as its program; each ends with the other.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path

IMPORTS = "torch", "torchvision", "matplotlib.pyplot", "ipykernel.kernelapp", "nbgrader.apps.nbgraderapp"
ADDRESS = "socket"


def start(folder):
    """Start the server, which ends when its standard input is closed; `folder` becomes the first of JUPYTER_PATH."""
    address = str(folder / ADDRESS)
    spec = {"display_name": "Python 3", "language": "python", "interrupt_mode": "message"}
    spec["argv"] = [sys.executable, __file__, "client", address, "ipykernel_launcher", "-f", "{connection_file}"]
    place = folder / "kernels" / "python3" / "kernel.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(spec))
    env = os.environ | {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}  # read by the import
    return subprocess.Popen([sys.executable, __file__, "server", address], stdin=subprocess.PIPE, env=env)


def python(module, *arguments):
    """The words that do what `python -m MODULE ARGUMENTS` does, sooner."""
    folder = Path(os.environ.get("JUPYTER_PATH", "").split(os.pathsep)[0])
    if not (folder / ADDRESS).exists():  # a system without `pidfd_open`
        return [sys.executable, "-m", module, *arguments]
    return [sys.executable, __file__, "client", str(folder / ADDRESS), module, *arguments]


def server(address):
    """Fork a program for every client; the first one waits for the imports."""
    del sys.path[0]  # tests/
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # read by the import of ipykernel
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for the programs
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(100)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            client, _ = listener.accept()
            for name in IMPORTS:
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
    """Become the program that `client` asks for, in its folder and environment, with its output."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    words, outputs, _, _ = socket.recv_fds(client, 2**20, 2)
    for target, source in enumerate([os.open(os.devnull, os.O_RDONLY), *outputs]):
        os.dup2(source, target)
    (module, *arguments), folder, environment = json.loads(words)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = ["", *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    threading.Thread(target=lambda: client.recv(1) or os._exit(1), daemon=True).start()  # the client was killed
    sys.argv = [module, *arguments]
    code = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)  # to take apart what is shared with the server would copy all of it


def client(address, *words):
    """Ask for the module that `words` begin with, with the others as its arguments; end as it ends."""
    with socket.socket(socket.AF_UNIX) as to:
        to.connect(address)
        socket.send_fds(to, [json.dumps([words, os.getcwd(), dict(os.environ)]).encode()], [1, 2])
        sys.exit((to.recv(1) or b"\1")[0])


if __name__ == "__main__":
    {"server": server, "client": client}[sys.argv[1]](*sys.argv[2:])

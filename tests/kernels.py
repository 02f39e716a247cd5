"""Kernels that start in a moment: forks of one process that has imported what every notebook imports.

A kernel takes five seconds of CPU before its first cell, nearly all for imports, and the tests start some sixty.
conftest.py starts the server and names the folder in JUPYTER_PATH, so that nbval, nbgrader and nbclient find there the
kernel "python3".  They start the client, which lives as long as its kernel; each ends with the other.
"""

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading

IMPORTS = "torch", "torchvision", "matplotlib.pyplot", "ipykernel.kernelapp"
ADDRESS = "socket"


def start(folder):
    """Start the server, which ends when its standard input is closed; `folder` becomes one of JUPYTER_PATH."""
    spec = {"display_name": "Python 3", "language": "python", "interrupt_mode": "message"}
    spec["argv"] = [sys.executable, __file__, "client", str(folder / ADDRESS), "-f", "{connection_file}"]
    place = folder / "kernels" / "python3" / "kernel.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(spec))
    env = os.environ | {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}  # read by the import
    return subprocess.Popen([sys.executable, __file__, "server", folder / ADDRESS], stdin=subprocess.PIPE, env=env)


def server(address):
    """Fork a kernel for every client; the first one waits for the imports."""
    del sys.path[0]  # tests/
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # read by the import of ipykernel
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the kernels
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(100)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            client, _ = listener.accept()
            for name in IMPORTS:
                importlib.import_module(name)
            if not os.fork():
                listener.close()
                kernel(client)
            client.close()


def kernel(client):
    """Become the kernel that `client` asks for, in its folder and environment, with its output."""
    for number in (signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    client.sendall(os.getpid().to_bytes(8, "little"))
    asked, outputs, _, _ = socket.recv_fds(client, 2**20, 2)
    for target, source in enumerate([os.open(os.devnull, os.O_RDONLY), *outputs]):
        os.dup2(source, target)
    arguments, folder, environment = json.loads(asked)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    threading.Thread(target=lambda: client.recv(1) or os._exit(1), daemon=True).start()  # the client was killed
    sys.argv = ["ipykernel_launcher", *arguments]
    sys.modules["ipykernel.kernelapp"].launch_new_instance()
    os._exit(0)


def client(address, *arguments):
    """Ask for a kernel with these arguments, and wait until it ends."""
    with socket.socket(socket.AF_UNIX) as to:
        to.connect(address)
        number = int.from_bytes(to.recv(8), "little")
        socket.send_fds(to, [json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode()], [1, 2])
        select.select([os.pidfd_open(number)], [], [])


if __name__ == "__main__":
    {"server": server, "client": client}[sys.argv[1]](*sys.argv[2:])

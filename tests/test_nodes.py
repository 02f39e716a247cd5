"""scripts/: training on two machines, training that loses a rank.  On a cluster: test_slurm.py.

The two machines are two network namespaces of this one, joined by a cable (a veth pair); only root may make them.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import forks
import pytest
import torch
from conftest import ROOT

from course.parallel.distributed import ONE_MACHINE

SCRIPT = ROOT / "scripts" / "train_ddp.py"
FLAGS = ["--dataset", "tiny", "--epochs", "2", "--batch-size", "250", "--save-every", "3"]  # 4 steps an epoch
TORCHRUN = sys.executable, "-m", "torch.distributed.run", "--standalone"
PATIENCE = 180  # seconds until a launch is given up; on a busy machine one takes 60


@contextlib.contextmanager
def launched(command, log, **variables):
    """The running `command`, its output in the file `log`; it and all processes below it are gone afterwards."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
                        "PYTHONWARNINGS": "error", "PYTHON": sys.executable} | variables  # fmt: skip
    with open(log, "w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env, cwd=ROOT, start_new_session=True)
    try:
        yield process
    finally:
        for number in [*below(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        process.wait()


def below(parent):
    """Numbers of all processes that descend from `parent`."""
    table = [line.split() for line in subprocess.check_output(["ps", "-eo", "pid=,ppid="], text=True).splitlines()]
    children = [int(number) for number, above in table if int(above) == parent]
    return children + [deeper for child in children for deeper in below(child)]


def ranks(agent):
    """{rank: its process} of the processes below `agent` that are ranks; Linux."""
    numbers = {}
    for number in below(agent):
        with contextlib.suppress(OSError), open(f"/proc/{number}/environ") as file:
            rank = re.search("\0RANK=(\\d+)\0", file.read())
            if rank:
                numbers[int(rank[1])] = number
    return numbers


def on_one_machine(checkpoint, *flags):
    command = [*TORCHRUN, "--nproc-per-node", "2", *flags, SCRIPT, *FLAGS, "--checkpoint", checkpoint]
    variables = ONE_MACHINE | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "PYTHON_EXEC": forks.executable()}
    return launched(list(map(str, command)), checkpoint.with_suffix(".log"), **variables)


def ended(process, log):
    code = process.wait(PATIENCE)
    assert code == 0, log.read_text()[-3000:]
    return log.read_text()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The checkpoint of a training in two ranks that nothing happened to."""
    path = tmp_path_factory.mktemp("undisturbed") / "run.pt"
    with on_one_machine(path) as process:
        said = ended(process, path.with_suffix(".log"))
    assert re.findall(r"^epoch (\d) of 2: loss \d\.\d{4}$", said, re.M) == ["1", "2"]
    assert [file.name for file in path.parent.iterdir() if "log" not in file.name] == ["run.pt"]
    return torch.load(path)


def assert_same(seen, expected):
    assert seen["step"] == expected["step"] == 8
    for name, values in expected["model"].items():
        assert torch.equal(seen["model"][name], values), name


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def hosts():
    """Names of two network namespaces that are joined by a cable: 10.77.0.1 and 10.77.0.2, interface "cable"."""
    if not shutil.which("ip"):
        pytest.skip("needs the command `ip` (Debian package iproute2)")
    names = [f"course{os.getpid()}{side}" for side in "ab"]
    try:
        try:
            for name in names:
                ip("netns", "add", name)
            ip("-n", names[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", names[1])
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this machine allows no network namespaces: {error.stderr.strip()}")
        for number, name in enumerate(names, 1):
            ip("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)  # the cable goes with it


def sent(host):
    """Bytes that `host` has sent over the cable, as its interface counts them."""
    counts = ip("-n", host, "-s", "link", "show", "cable").splitlines()
    return int(next(counts[i + 1] for i, line in enumerate(counts) if "TX:" in line).split()[0])


def test_two_machines_train_what_one_does(hosts, undisturbed, tmp_path):
    checkpoint, logs = tmp_path / "run.pt", [tmp_path / f"{number}.log" for number in (1, 2)]
    before = [sent(host) for host in hosts]
    with contextlib.ExitStack() as stack:
        agents = []
        for number, (host, log) in enumerate(zip(hosts, logs, strict=True), 1):
            command = ["ip", "netns", "exec", host, "scripts/launch_nodes.sh", "2", "10.77.0.1:29500", "test"]
            command += ["--nproc-per-node", "1", "--", "scripts/train_ddp.py", *FLAGS, "--checkpoint", str(checkpoint)]
            variables = {"INTERFACE": "cable", "ADDRESS": f"10.77.0.{number}", "MAX_RESTARTS": "0"}
            agents.append(stack.enter_context(launched(command, log, **variables)))
        said = [ended(agent, log) for agent, log in zip(agents, logs, strict=True)]
    assert sorted("epoch 2 of 2: loss" in text for text in said) == [False, True]  # rank 0 alone reports
    assert_same(torch.load(checkpoint), undisturbed)
    gradients = 8 * sum(v.nbytes for v in undisturbed["model"].values() if v.is_floating_point())
    for host, count in zip(hosts, before, strict=True):
        assert sent(host) - count > 0.9 * gradients, "the gradients took another way than the cable"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for ranks in /proc")
def test_a_killed_rank_costs_the_work_since_the_checkpoint_and_nothing_else(undisturbed, tmp_path):
    checkpoint = tmp_path / "run.pt"
    saved = []
    with on_one_machine(checkpoint, "--max-restarts", "1") as process:
        deadline = time.monotonic() + PATIENCE
        while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        victim = ranks(process.pid)[1]
        os.kill(victim, signal.SIGKILL)
        while os.path.exists(f"/proc/{victim}/environ") and victim in ranks(process.pid).values():
            time.sleep(0.01)
        time.sleep(0.1)
        saved.append(torch.load(checkpoint)["step"])
        said = ended(process, checkpoint.with_suffix(".log"))
    assert "exitcode: -9" in said, "the rank had ended before it was killed"
    assert 3 <= saved[0] < 8
    # an epoch that the second life began at its start is reported by it; those before the checkpoint are not
    assert re.findall(r"^epoch 2 of 2", said, re.M) == ["epoch 2 of 2"]
    assert_same(torch.load(checkpoint), undisturbed)


def test_ranks_of_one_machine_meet_where_its_name_leads_nowhere():
    command = [forks.executable(), *TORCHRUN[1:], "--no-python", "printenv", "MASTER_ADDR"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | ONE_MACHINE, timeout=PATIENCE)
    assert done.stdout == "127.0.0.1\n", done.stderr


def test_without_a_store_of_its_own_a_second_life_says_what_to_set(tmp_path):
    variables = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "TORCHELASTIC_RESTART_COUNT": "1",
                 "TORCHELASTIC_USE_AGENT_STORE": "True"}  # fmt: skip
    with launched([forks.executable(), str(SCRIPT), "--checkpoint", "x"], tmp_path / "log", **variables) as process:
        assert process.wait(PATIENCE) == 1
    assert "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in (tmp_path / "log").read_text()


def test_without_torchrun_one_process_trains(tmp_path):
    command = [sys.executable, str(SCRIPT), *FLAGS, "--history", str(tmp_path / "log"), "--checkpoint"]
    with launched([*command, str(tmp_path / "run.pt")], tmp_path / "out") as process:
        said = ended(process, tmp_path / "out")
    assert "one process trains alone" in said
    assert re.findall(r"epoch (\d) of 2: loss", (tmp_path / "log").read_text()) == ["1", "2"]


@pytest.mark.parametrize("name", ["launch_nodes.sh", "train.slurm"])
def test_a_script_is_valid_bash_and_stops_at_the_first_error(name):
    subprocess.run(["bash", "-n", ROOT / "scripts" / name], check=True)
    assert "set -euo pipefail" in (ROOT / "scripts" / name).read_text().splitlines()

"""A real Slurm with two nodes on this machine: `python tests/slurm.py FOLDER` grades and trains on it.

The program runs as root in namespaces of its own (`call` starts it so), so that no port or process meets another's.
Each node is a slurmd in a process namespace of its own, so that killing one ends all that runs on it, as when a machine
loses its power.  Prints a line per step; everything lies in FOLDER.
"""

import contextlib
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import nbgrader.api
from submissions import UNIT, hand_in
from walks import PATIENCE, ROOT, NotHere, do, lacking, main, wait_until

from instructor.grading import batch  # noqa: F401 - imported here, once, and not in each fork
from instructor.grading import command as grade_command

PROGRAMS = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge",
            "unshare": "util-linux", "ip": "iproute2", "bwrap": "bubblewrap"}  # fmt: skip
NAMESPACES = "unshare --mount --net --uts --pid --fork --kill-child --mount-proc".split()
NODE = "unshare --pid --fork --kill-child --mount-proc".split()
NODES = ("n1", "n2")
EXERCISES = ("scaled_lr", "linear_warmup")  # of one part
EPOCHS = 10  # of 4 steps each: seconds, in which a node is lost
# the nodes are given more cores and memory than there may be: what a job asks for is for a machine of a real cluster
CONFIG = """
ClusterName=test
SlurmctldHost=n1
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool_%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd_%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd_%n.log
SlurmctldPort=16817
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SchedulerParameters=defer_batch,sched_interval=1,bf_interval=1
KillWait=1
MinJobAge=86400
MessageTimeout=60
TCPTimeout=60
BatchStartTimeout=120
SlurmdTimeout=120
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
NodeName=n[1-2] NodeHostname=n1 NodeAddr=n[1-2] Port=[17001-17002] CPUs=2 RealMemory=64000 State=UNKNOWN
PartitionName=cpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """Why Slurm cannot be tried on this machine; None if it can."""
    return lacking(PROGRAMS, [*NAMESPACES, *NODE, "true"])


def call(folder):
    """The command that walks, with all that it makes in FOLDER."""
    return [*NAMESPACES, sys.executable, __file__, str(folder)]


def said(*words):
    """What a command prints; it must end well."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


class Cluster:
    """A running Slurm of two nodes."""

    def __init__(self, folder):
        self.folder, self.processes = folder, {}

    def start(self):
        said("ip", "link", "set", "lo", "up")
        for number in (1, 2):  # Slurm finds no address where there is 127.0.0.1 alone
            said("ip", "address", "add", f"10.77.0.{number}/32", "dev", "lo")
        socket.sethostname("n1")
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n10.77.0.1 n1\n10.77.0.2 n2\n")
        said("mount", "--bind", self.folder / "hosts", "/etc/hosts")
        (self.folder / "state").mkdir()
        (self.folder / "slurm.conf").write_text(CONFIG.format(folder=self.folder))
        os.environ["SLURM_CONF"] = str(self.folder / "slurm.conf")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        files = {"key": key, "socket": self.folder / "munge.socket", "pid": self.folder / "munge.pid",
                 "seed": self.folder / "munge.seed", "log": self.folder / "munge.log"}  # fmt: skip
        self._run("munged", "munged", "--foreground", "--force", f"--socket={files['socket']}",
                  *(f"--{name}-file={files[name]}" for name in ("key", "pid", "seed", "log")))  # fmt: skip
        wait_until(files["socket"].exists, "munged", self.processes["munged"])
        self._run("slurmctld", "slurmctld", "-D", "-i")
        for node in NODES:
            self.start_node(node)

    def start_node(self, node):
        """Start a node, and wait until jobs can run on it."""
        (self.folder / f"spool_{node}").mkdir(exist_ok=True)
        self._run(node, *NODE, "slurmd", "-D", "-N", node)
        wait_until(lambda: self.state_of(node) in ("idle", "mixed", "allocated"), node, self.processes[node])

    def lose_node(self, node):
        """End all that runs on a node at once, and tell Slurm, which would notice after SlurmdTimeout."""
        self.processes[node].kill()
        self.processes[node].wait()
        said("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")
        wait_until(lambda: "down" in self.state_of(node), f"{node} is lost")

    def state_of(self, node):
        done = subprocess.run(["sinfo", "-h", "-n", node, "-o", "%T"], capture_output=True, text=True)
        return done.stdout.strip()

    def _run(self, name, *words):
        with open(self.folder / f"{name}.out", "a") as out:
            self.processes[name] = subprocess.Popen(list(map(str, words)), stdout=out, stderr=out)

    def stop(self):
        for process in reversed(self.processes.values()):
            process.kill()


def jobs():
    """{job or task of an array: (state, node)} of all that Slurm knows."""
    lines = said("squeue", "-h", "-r", "-t", "all", "-o", "%i %T %N").splitlines()
    return {name: (state, *node) for name, state, *node in map(str.split, lines)}


def process_of(job, program):
    """The number of a job's process whose command line holds `program`, or None."""
    array, _, task = job.partition("_")
    for number in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            place = Path("/proc") / number
            variables = place.joinpath("environ").read_bytes().decode("utf-8", "replace").split("\0")
            words = place.joinpath("cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            is_python = "python" in Path(words[0]).name
            if f"SLURM_ARRAY_JOB_ID={array}" in variables and f"SLURM_ARRAY_TASK_ID={task}" in variables:
                if is_python and any(program in word for word in words):
                    return int(number)


# ---- what is tried


def grading(folder, *more):
    """`course grade` of the inbox on the cluster, running in a fork of this process, which has imported it."""
    words = [folder / "inbox", "--course", folder / "course", "--unit", UNIT, "--ask", ",".join(EXERCISES)]
    words += ["--cluster", "slurm", "--slurm", "partition=cpu", *more]
    process = multiprocessing.get_context("fork").Process(target=_grade, args=(folder, list(map(str, words))))
    process.start()
    return process


def _grade(folder, words):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out = os.open(folder / "grade.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(out, stream)
    grade_command.grade.main(words, standalone_mode=False)


def exit_code(process):
    process.join(PATIENCE)
    return process.exitcode


def stopped(cluster):
    """Ctrl-C while tasks wait for a node takes them out of the queue."""
    for node in NODES:
        said("scontrol", "update", f"nodename={node}", "state=drain", "reason=later")
    command = grading(cluster.folder)
    waiting = wait_until(jobs, "the array")
    assert {state for state, *_ in waiting.values()} == {"PENDING"}, waiting
    shown = said("scontrol", "show", "job", next(iter(waiting)))
    assert "TimeLimit=04:00:00" in shown and "MinMemoryNode=6G" in shown and "NumCPUs=2" in shown, shown
    os.kill(command.pid, signal.SIGINT)
    assert exit_code(command) == 130
    assert {state for state, *_ in jobs().values()} == {"CANCELLED"}
    for node in NODES:
        said("scontrol", "update", f"nodename={node}", "state=resume")


def graded(cluster):
    """Of two tasks one is killed and named; the node of the other is lost, and that task continues elsewhere."""
    before = jobs().keys()
    command = grading(cluster.folder, "--jobs", "2")

    def tasks():
        running = {node[0]: job for job, (state, *node) in jobs().items() if job not in before and state == "RUNNING"}
        both = running.keys() == set(NODES) and all(process_of(job, "submitit") for job in running.values())
        return running if both else None

    tasks = wait_until(tasks, "two tasks")
    os.kill(process_of(tasks["n1"], "submitit"), signal.SIGKILL)
    cluster.lose_node("n2")
    start_again(tasks["n2"])
    assert exit_code(command) == 1, (cluster.folder / "grade.out").read_text()
    shown = (cluster.folder / "grade.out").read_text()
    assert "2 submissions were not graded" in shown and shown.count("its task died (FAILED)") == 2, shown
    wait_until(lambda: jobs()[tasks["n2"]] == ("COMPLETED", "n1"), "the end of the task that was put back")
    records = list((cluster.folder / "course" / "autograded").iterdir())
    assert len(records) == 2, records
    cluster.start_node("n2")


def trained(cluster):
    """scripts/train.slurm on both nodes; one is lost after a checkpoint, and the job continues when it is back."""
    here = cluster.folder / "training"
    here.mkdir()
    (here / "scripts").symlink_to(ROOT / "scripts")
    flags = ["--dataset", "tiny", "--epochs", EPOCHS, "--batch-size", 250, "--save-every", 3]
    os.chdir(here)
    job = re.search(r"\d+", said("sbatch", "scripts/train.slurm", *flags))[0]
    log = here / f"train_ddp-{job}.log"
    wait_until(lambda: (log.exists() and "epoch 2 of" in log.read_text()) or ended(job), "two epochs", every=0.01)
    cluster.lose_node("n2")
    assert not ended(job), log.read_text()
    cluster.start_node("n2")
    start_again(job)
    wait_until(lambda: ended(job), "the end of the training")
    assert jobs()[job][0] == "COMPLETED", log.read_text()[-3000:]
    assert "Restarts=1" in said("scontrol", "show", "job", job)
    epochs = [int(number) for number in re.findall(rf"^epoch (\d+) of {EPOCHS}: loss", log.read_text(), re.M)]
    assert sorted({*epochs}) == list(range(1, EPOCHS + 1)) and epochs.count(1) == 1, "it went on at the checkpoint"
    assert (here / f"train_ddp-{job}.pt").is_file()


def start_again(job):
    """Wait until a job that lost its node runs again; Slurm would let two minutes pass."""

    def has_started():
        if jobs()[job][0] == "PENDING":
            subprocess.run(["scontrol", "update", f"jobid={job}", "starttime=now"], capture_output=True)
        return jobs()[job][0] == "RUNNING" or ended(job)

    wait_until(has_started, "a new start")


def ended(job):
    return jobs()[job][0] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")


STEPS = (stopped, graded, trained)


def start_or_say_why(cluster):
    """Start the cluster.  Raises: NotHere, with what its programs wrote, if this machine or its Slurm cannot."""
    try:
        cluster.start()
    except (AssertionError, OSError) as error:
        wrote = "\n".join(path.read_text()[-1000:] for path in sorted(cluster.folder.glob("*.out")))
        raise NotHere(f"Slurm does not start: {error}\n{wrote}") from None


def walk(folder):
    """Do all steps, and print the name of each when it is done."""
    for number, learner in enumerate(("ann", "bob", "cat", "dan")):
        hand_in(folder / "inbox", learner, EXERCISES[number % 2])
    (folder / "course").mkdir()
    os.environ |= {"PYTHONPATH": str(ROOT), "PYTHON": sys.executable, "OMP_NUM_THREADS": "1", "COURSE_DEVICE": "cpu",
                   "COURSE_SCALE": "smoke", "COURSE_DATA": str(folder / "data")}  # fmt: skip
    nbgrader.api.get_alembic_version = lambda: "0"  # it starts a program, which takes seconds
    cluster = Cluster(folder)
    try:
        start_or_say_why(cluster)
        do(STEPS, cluster)
    finally:
        cluster.stop()


if __name__ == "__main__":
    main(walk)

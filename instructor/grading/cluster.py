"""Grade where one machine is not enough: submissions -> an array of tasks of an existing scheduler,
by *submitit*.

    course grade INBOX --cluster slurm --jobs 20 --slurm partition=cpu

Repository, inbox and course folder lie on a disk that all machines see. A task computes the right
answers itself,
grades its share and puts one file per submission in place, whole: a file that is there is a
submission that is done. "local" runs the same tasks as processes of this machine.
"""

import functools
import math
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from course.errors import CourseError
from instructor.grading import shards
from instructor.grading.plan import Plan
from instructor.grading.results import Submission
from instructor.grading.submission import work
from instructor.jail.bubblewrap import refuse_without_bubblewrap
from instructor.jail.zygote import Room

LOOK = 1  # seconds between two looks at what is there
ASK = 5  # seconds between two questions to Slurm
ENDED = set(
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED TIMEOUT".split()
)
MINUTES = 240  # that the scheduler lets a task run, unless --slurm time=... says otherwise
GRADER = 2  # GiB that a task may take beside its submission


def grade_on_cluster(
    jobs: list[Submission],
    folder: Path,
    cluster: str,
    tasks: int,
    parameters: dict,
    unsafe,
    cuda,
    room: Room,
    asked=None,
    secret=None,
):
    """Yield (Submission, None) of each of `jobs` once its shard lies in `folder`, (Submission,
    reason) of the others.

    Args:
        cluster: "slurm", or "local" for processes of this machine.
        tasks: how many tasks share the submissions.
        parameters: {name: value} for submitit's Slurm executor: partition, account, time (minutes),
            ...
        asked: {unit: {part: names of what counts}}; None for all.
        secret: what the seeds of the batch are drawn from.

    Leaving it early cancels what still runs. Raises: CourseError if the scheduler takes no jobs
    from here.
    """
    unfinished = {
        shards.place(folder, job): replace(
            job, files={part: path.absolute() for part, path in job.files.items()}
        )
        for job in jobs
    }
    shares = [list(unfinished.items())[first::tasks] for first in range(min(tasks, len(jobs)))]
    how = dict(unsafe=unsafe, cuda=cuda, room=room, asked=asked, secret=secret)
    share = functools.partial(grade_share, folder=folder, **how)
    wanted = {
        "timeout_min": MINUTES,
        "mem_gb": math.ceil(room.memory / 2**30) + GRADER,
        "cpus_per_task": 2,
    }
    submitted = _submit(
        share, shares, folder, cluster, wanted | ({"gpus_per_node": 1} if cuda else {}), parameters
    )
    states = _SlurmStates(submitted) if cluster == "slurm" else _LocalStates()
    try:
        ended = False
        while not ended:
            time.sleep(LOOK)
            # first: what it wrote before is seen below
            ended = all([states.has_ended(task) for task in submitted])
            for place in sorted(unfinished.keys() & {*folder.glob("*.json")}):
                yield unfinished.pop(place), None
        for task, jobs in zip(submitted, shares, strict=True):
            for place in sorted(place for place, _ in jobs if place in unfinished):
                yield unfinished.pop(place), _reason(task, states)
    finally:
        for task in submitted:
            if not states.has_ended(task):
                task.cancel(check=False)


def grade_share(
    share: list[tuple], folder: Path, unsafe, cuda, room: Room, asked=None, secret=None
) -> str:
    """Save the results of `share`, [(file, Submission), ...], in `folder`; return "", or why it
    could not be done.

    It ends early when `folder` is gone: then so is the grader that wanted it, and another has taken
    over.
    """
    try:
        if not unsafe:
            refuse_without_bubblewrap()
        device = "cuda" if cuda else "cpu"
        # Slurm may have started this task again
        jobs = [job for place, job in share if not place.exists()]
        plans = {
            unit: Plan(unit, device, asked and asked[unit], secret)
            for unit in {job.unit for job in jobs}
        }
        for _ in work(jobs, plans, folder, unsafe, cuda, room):
            pass
    except CourseError as error:
        return str(error)
    return ""


def _submit(function, arguments, folder, cluster, wanted, parameters):
    """[a submitit job for each of `arguments`, ...]"""
    try:
        import submitit
    except ImportError:
        raise CourseError(
            "--cluster hands work to a scheduler by the package submitit, which is not installed; "
            "say `pip install submitit`, or grade on this machine, without --cluster."
        ) from None
    try:
        # its files beside the shards: seen together
        executor = submitit.AutoExecutor(folder, cluster=cluster)
        executor.update_parameters(
            name="course-grading",
            **wanted,
            **{f"slurm_{name}": value for name, value in parameters.items()},
        )
        return executor.map_array(function, arguments)
    except (
        NameError,
        ValueError,
        RuntimeError,
        OSError,
    ) as error:  # what submitit raises, also for sbatch's own words
        raise CourseError(f"the scheduler {cluster} took no jobs: {error}") from None


def _reason(task, states):
    """Why a task that has ended left submissions ungraded."""
    if task.paths.result_pickle.exists():
        return task.result() or "its task ended without it."
    return f"its task died ({states.of(task)}); its last words are in {task.paths.stderr}."


class _LocalStates:
    """What submitit knows of processes of this machine."""

    def has_ended(self, task):
        return task.done()

    def of(self, task):
        return task.state


class _SlurmStates:
    """What Slurm says of tasks, asked for all of them at once.

    submitit asks `sacct`, which many clusters do not have; then it would wait for a dead task for
    ever. A task that
    Slurm puts into the queue again has not ended, so that one question does not decide: two must
    agree.
    """

    def __init__(self, tasks):
        self.tasks, self.asked, self.state, self.gone = (
            tasks,
            -math.inf,
            {},
            {task.job_id: 0 for task in tasks},
        )

    def has_ended(self, task):
        if task.paths.result_pickle.exists():
            return True
        if time.monotonic() - self.asked > ASK:
            self._ask()
        return self.gone[task.job_id] > 1

    def of(self, task):
        return self.state.get(task.job_id, "no longer known to Slurm")

    def _ask(self):
        arrays = ",".join(sorted({task.job_id.split("_")[0] for task in self.tasks}))
        call = [
            "squeue",
            "--noheader",
            "--array",
            "--states=all",
            "--format=%i %T",
            f"--jobs={arrays}",
        ]
        self.asked = time.monotonic()
        try:
            done = subprocess.run(call, capture_output=True, text=True)
        except OSError:
            return
        if done.returncode and "Invalid job id" not in done.stderr:
            return  # Slurm does not answer now
        now = dict(line.split() for line in done.stdout.splitlines())
        self.state |= now
        for name in self.gone:
            self.gone[name] = self.gone[name] + 1 if now.get(name, "COMPLETED") in ENDED else 0

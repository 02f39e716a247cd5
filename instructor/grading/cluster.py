"""Grade where one machine is not enough: submissions -> an array of tasks of an existing scheduler,
by *submitit*.

    course grade INBOX --cluster slurm --jobs 20 --slurm partition=cpu

Repository, inbox and course folder lie on a disk that all machines see. A task computes the right
answers itself, grades its share and puts one file per submission in place, whole: a file that is
there is a submission that is done. "local" runs the same tasks as processes of this machine.
"""

import functools
import math
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from course.errors import CourseError
from instructor.grading.limits import CLUSTER_POLL_SECONDS, SLURM_QUERY_SECONDS
from instructor.grading.pending_results import path_of
from instructor.grading.plan import Plan
from instructor.grading.results import Attempt, Attempts, Submission
from instructor.grading.submission import Execution, work
from instructor.jail.bubblewrap import refuse_without_bubblewrap
from instructor.release.asked import Choice

ENDED = set(
    """BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED
       TIMEOUT""".split()
)


@dataclass(frozen=True)
class Cluster:
    """A scheduler, and what it is told."""

    scheduler: str  # "slurm", or "local" for processes of this machine
    # of submitit's Slurm executor: partition, account, time (minutes), ...
    parameters: Mapping[str, Any] = field(default_factory=dict)


class Job(NamedTuple):
    """A submission, and the file that holds its result once it is graded."""

    file: Path
    submission: Submission


def grade_on_cluster(
    submissions: Sequence[Submission],
    folder: Path,
    cluster: Cluster,
    execution: Execution,
    asked: Choice | None = None,
    secret: str | None = None,
) -> Attempts:
    """Yield an Attempt for each submission, once its result lies in `folder` or will not.

    Args:
        asked: as of Plan, for each unit.
        secret: what the seeds of the batch are drawn from.

    Leaving it early cancels what still runs. Raises: CourseError if the scheduler takes no jobs
    from here.
    """
    jobs = [Job(path_of(folder, one), _with_absolute_paths(one)) for one in submissions]
    n_shares = min(execution.limits.cluster_tasks, len(jobs))
    shares = [jobs[first::n_shares] for first in range(n_shares)]
    work_on = functools.partial(
        grade_share, folder=folder, execution=execution, asked=asked, secret=secret
    )
    tasks = _submit(work_on, shares, folder, cluster, _resources(execution))
    states = _SlurmStates(tasks) if cluster.scheduler == "slurm" else _LocalStates()
    unfinished = {job.file: job.submission for job in jobs}
    try:
        ended = False
        while not ended:
            time.sleep(CLUSTER_POLL_SECONDS)
            # first: what it wrote before is seen below
            ended = all([states.has_ended(task) for task in tasks])
            for file in sorted(unfinished.keys() & {*folder.glob("*.json")}):
                yield Attempt(unfinished.pop(file), None)
        for task, share in zip(tasks, shares, strict=True):
            for file in sorted(job.file for job in share if job.file in unfinished):
                yield Attempt(unfinished.pop(file), _failure(task, states))
    finally:
        for task in tasks:
            if not states.has_ended(task):
                task.cancel(check=False)


def _with_absolute_paths(submission: Submission) -> Submission:
    files = {part: path.absolute() for part, path in submission.files.items()}
    return replace(submission, files=files)


def _resources(execution: Execution) -> dict[str, Any]:
    """What a task needs, in submitit's words."""
    limits = execution.limits
    needed = {
        "timeout_min": limits.task_minutes,
        "mem_gb": math.ceil(limits.memory_gib + limits.task_memory_gib),
        "cpus_per_task": limits.task_cpus,
    }
    return needed | {"gpus_per_node": 1} if execution.cuda else needed


def grade_share(
    share: Sequence[Job],
    folder: Path,
    execution: Execution,
    asked: Choice | None = None,
    secret: str | None = None,
) -> str:
    """Save the results of `share` in `folder`; return "", or why it could not be done.

    It ends early when `folder` is gone: then so is the grader that wanted it, and another has taken
    over.
    """
    try:
        if not execution.unsafe:
            refuse_without_bubblewrap()
        # Slurm may have started this task again
        submissions = [job.submission for job in share if not job.file.exists()]
        plans = {}
        for unit in {one.unit for one in submissions}:
            of_unit = asked[unit] if asked else None
            plans[unit] = Plan(unit, execution.device, of_unit, secret)
        for _ in work(submissions, plans, folder, execution):
            pass
    except CourseError as error:
        return str(error)
    return ""


def _submit(
    function: Callable[[Sequence[Job]], str],
    shares: Sequence[Sequence[Job]],
    folder: Path,
    cluster: Cluster,
    resources: dict[str, Any],
) -> list[Any]:
    """A submitit job for each of `shares`."""
    try:
        import submitit
    except ImportError:
        raise CourseError(
            "--cluster hands work to a scheduler by the package submitit, which is not installed; "
            "say `pip install submitit`, or grade on this machine, without --cluster."
        ) from None
    parameters = {f"slurm_{name}": value for name, value in cluster.parameters.items()}
    try:
        # its files go into the folder of the results, so that both are seen together
        executor = submitit.AutoExecutor(folder, cluster=cluster.scheduler)
        executor.update_parameters(name="course-grading", **resources, **parameters)
        return list(executor.map_array(function, shares))
    # what submitit raises, also for sbatch's own words
    except (NameError, ValueError, RuntimeError, OSError) as error:
        raise CourseError(f"the scheduler {cluster.scheduler} took no jobs: {error}") from None


class _States(Protocol):
    """What a scheduler says of tasks."""

    def has_ended(self, task: Any) -> bool: ...

    def of(self, task: Any) -> str: ...


def _failure(task: Any, states: _States) -> str:
    """Why a task that has ended left submissions ungraded."""
    if task.paths.result_pickle.exists():
        return task.result() or "its task ended without it."
    return f"its task died ({states.of(task)}); its last words are in {task.paths.stderr}."


class _LocalStates:
    """What submitit knows of processes of this machine."""

    def has_ended(self, task: Any) -> bool:
        return bool(task.done())

    def of(self, task: Any) -> str:
        return str(task.state)


class _SlurmStates:
    """What Slurm says of tasks; one question asks for all of them.

    submitit asks `sacct`, which many clusters do not have; then it would wait forever for a dead
    task. A task that Slurm puts into the queue again has not ended, so one answer does not decide:
    two must agree.
    """

    def __init__(self, tasks: Sequence[Any]) -> None:
        self.tasks = tasks
        self.asked = -math.inf  # time.monotonic() of the latest question
        self.state: dict[str, str] = {}
        self.gone = {task.job_id: 0 for task in tasks}  # answers in a row that it has ended

    def has_ended(self, task: Any) -> bool:
        if task.paths.result_pickle.exists():
            return True
        if time.monotonic() - self.asked > SLURM_QUERY_SECONDS:
            self._ask()
        return self.gone[task.job_id] > 1

    def of(self, task: Any) -> str:
        return self.state.get(task.job_id, "no longer known to Slurm")

    def _ask(self) -> None:
        arrays = ",".join(sorted({task.job_id.split("_")[0] for task in self.tasks}))
        call = ["squeue", "--noheader", "--array", "--states=all", "--format=%i %T"]
        self.asked = time.monotonic()
        try:
            done = subprocess.run([*call, f"--jobs={arrays}"], capture_output=True, text=True)
        except OSError:
            return
        if done.returncode and "Invalid job id" not in done.stderr:
            return  # Slurm does not answer now
        now = {}
        for line in done.stdout.splitlines():
            name, state = line.split()
            now[name] = state
        self.state |= now
        for name in self.gone:
            has_ended = now.get(name, "COMPLETED") in ENDED
            self.gone[name] = self.gone[name] + 1 if has_ended else 0

"""The numbers of `course grade`: seconds, bytes, sizes, workers and retries.

`CourseGrading` holds those that an instructor may set, in the file that nbgrader reads:

    c.CourseGrading.cell_seconds = 120          # in nbgrader_config.py

    limits = configured(config, {"workers": 4})  # of that file, then of the command line
    limits.jail                                  # what goes with each jail (jail/limits.py)

Functions take it as their argument `limits`. The constants below are nobody's to set.
docs/grading.md holds `as_table()`.
"""

import difflib
import math
from typing import Any

from traitlets import Float, Integer, TraitError, default
from traitlets.config import Config, Configurable

from course.device import cores
from course.errors import CourseError
from instructor.jail.limits import JailLimits, ProcessLimits, SharedLimits

GIB = 2**30  # bytes

# what pages show of a learner's texts and pictures; the time of both parsers, of markdown and of
# code, grows with the square of the length, so longer texts are shown as they are
SHOWN_TEXT_CHARACTERS = 100_000  # of one output
SHOWN_MARKDOWN_CHARACTERS = 10_000
SHOWN_CODE_CHARACTERS = 20_000
SHOWN_CODE_LINE_CHARACTERS = 500
SHOWN_PICTURE_BYTES = 2_000_000
SHOWN_PICTURE_PIXELS = 20_000_000
# what a report keeps of the texts in a message of a jail
PRINTED_CHARACTERS = 4000
REFUSED_CHARACTERS = 500

SEED_MAX = 100_000  # probes make sizes of a seed by remainders
SEED_DRAWS = 8  # with so many a seed is taken even if one of our own right answers fails with it
LEARNER_NAME_CHARACTERS = 128
UNKNOWN_FILES_NAMED = 3  # in a sentence; of the others it says how many
EXCHANGE_SECRET_BYTES = 1000  # nbgrader's have 128
PROGRESS_FILE_BYTES = 50_000_000  # of a file that `course progress --class` reads
CLUSTER_POLL_SECONDS = 1  # between two looks at the results that tasks wrote
SLURM_QUERY_SECONDS = 5  # between two questions to Slurm

# name of a number -> the option of `course grade` that sets it
OPTIONS = {
    "workers": "--workers",
    "memory_gib": "--memory",
    "cell_seconds": "--cell-seconds",
    "answer_seconds": "--answer-seconds",
    "patience_seconds": "--patience",
    "submission_minutes": "--minutes",
    "cluster_tasks": "--jobs",
}


def _amount(value: float, help: str) -> Float[float, float | int]:
    return Float(value, min=0.0, help=help).tag(config=True)


def _count(value: int, help: str, most: int | None = None) -> Integer[int, int]:
    return Integer(value, min=0, max=most, help=help).tag(config=True)


def _tries(value: int, help: str) -> Integer[int, int]:
    return Integer(value, min=1, help=help).tag(config=True)


class CourseGrading(Configurable):
    """The numbers of `course grade` that an instructor may set."""

    workers = Integer(min=1, help="Submissions graded at the same time.").tag(config=True)

    # seconds
    cell_seconds = _amount(60, "Seconds that a cell of the learner's may take.")
    answer_seconds = _amount(
        math.inf, "Seconds that an answer may take, where its exercise does not allow less."
    )
    patience_seconds = _amount(20, "Seconds beyond either limit, on a busy machine.")
    part_factor = _amount(
        5, "`cell_seconds` times this: all cells of a part, or all its checks that do not end."
    )
    submission_minutes = _amount(10, "Minutes that all code of a submission may take.")

    # the jail of a part
    memory_gib = _amount(
        SharedLimits.memory_bytes / GIB, "GiB that one notebook may take, files in /tmp included."
    )
    disk_gib = _amount(
        SharedLimits.disk_bytes / GIB, "GiB of files in /tmp, and as many in /dev/shm."
    )
    processes = _count(ProcessLimits.processes, "Processes and threads of one notebook.")
    descriptors = _count(ProcessLimits.descriptors, "Open files of one process.")
    file_gib = _amount(
        ProcessLimits.file_bytes / GIB, "GiB of one file, holes included: unit 04 makes 64."
    )
    address_space_gib = _amount(
        ProcessLimits.address_space_bytes / GIB,
        "GiB of addresses of one process: unit 04 maps that file. No limit with `--cuda`.",
    )
    message_bytes = _count(SharedLimits.message_bytes, "Bytes of one message of a jail.")
    all_messages_bytes = _count(SharedLimits.all_messages_bytes, "Bytes of all messages of a jail.")

    # what is read of a submission
    notebook_bytes = _count(
        20_000_000, "Bytes of a submitted notebook, which takes up to 25 times as many in memory."
    )
    cell_characters = _count(200_000, "Characters of a submitted cell; a longer one is dropped.")
    added_cells = _count(200, "Cells that a learner added to a part.")
    added_characters = _count(2_000_000, "Characters in all of these.")

    # what is kept of outputs
    cell_text_characters = _count(
        SharedLimits.cell_text_characters,
        "Characters that a cell may print; what goes beyond is cut.",
        most=SHOWN_TEXT_CHARACTERS,
    )
    cell_printed_characters = _count(
        SharedLimits.cell_printed_characters,
        "Characters after which a cell that prints is stopped.",
    )
    picture_bytes = _count(
        SharedLimits.picture_bytes, "Bytes of one picture, in base64.", most=SHOWN_PICTURE_BYTES
    )
    cell_outputs = _count(50, "Outputs of a cell that are kept.")
    output_bytes = _count(3_000_000, "Bytes of one output that is kept.")
    part_output_bytes = _count(10_000_000, "Bytes of all outputs of a part that are kept.")

    # how often something is tried that may have ended because of the machine
    part_tries = _tries(2, "Runs of a part whose process ended by itself.")
    check_tries = _tries(2, "Runs of a check whose process ended or that a busy machine stopped.")
    worker_tries = _tries(2, "Runs of a submission whose grading process died.")

    # --cluster
    cluster_tasks = _tries(8, "Tasks on the cluster.")
    task_minutes = _tries(240, "Minutes of a task, unless `--slurm time=...` says otherwise.")
    task_memory_gib = _amount(2, "GiB of a task, in addition to those of its notebook.")
    task_cpus = _tries(2, "Processors of a task.")

    @default("workers")
    def _all_cores(self) -> int:
        return cores()

    @property
    def submission_seconds(self) -> float:
        """Seconds that all code of a submission may take."""
        return 60 * self.submission_minutes

    @property
    def part_seconds(self) -> float:
        """Seconds that all cells of a part may take, and all its checks that do not end."""
        return self.part_factor * self.cell_seconds

    @property
    def jail(self) -> JailLimits:
        """What goes with each jail."""
        shared = SharedLimits(
            memory_bytes=int(self.memory_gib * GIB),
            disk_bytes=int(self.disk_gib * GIB),
            message_bytes=self.message_bytes,
            all_messages_bytes=self.all_messages_bytes,
            cell_text_characters=self.cell_text_characters,
            cell_printed_characters=self.cell_printed_characters,
            picture_bytes=self.picture_bytes,
        )
        per_process = ProcessLimits(
            file_bytes=int(self.file_gib * GIB),
            processes=self.processes,
            descriptors=self.descriptors,
            address_space_bytes=int(self.address_space_gib * GIB),
        )
        return JailLimits(shared, per_process)


DEFAULTS = CourseGrading()
SECTION = CourseGrading.__name__
SECTION_LIKENESS_MIN = 0.8  # of a name in the configuration that is taken for a slip of SECTION


def configured(config: Config, options: dict[str, Any] | None = None) -> CourseGrading:
    """The numbers of a configuration, and of `options` where they say otherwise.

    Raises: CourseError, one sentence, for a name that there is not and for a value of a wrong type.
    """
    for section in set(config) - {SECTION}:
        if difflib.get_close_matches(section, [SECTION], 1, SECTION_LIKENESS_MIN):
            raise CourseError(
                f"nbgrader_config.py sets c.{section}, which nothing reads; write c.{SECTION}."
            )
    values = {**config.get(SECTION, {}), **(options or {})}
    known = CourseGrading.class_trait_names(config=True)
    for name in values:
        if name not in known:
            raise CourseError(_unknown(name, known))
    try:
        return CourseGrading(config=Config(CourseGrading=values))
    except TraitError as error:
        raise CourseError(f"a number of CourseGrading is wrong: {error}") from None


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    advice = f"did you mean {near[0]}?" if near else "docs/grading.md lists what there is."
    return f"nbgrader_config.py sets CourseGrading.{name}, which there is not; {advice}"


def shown_value(name: str) -> str:
    """The default of a number, as a reader writes it: "60", "20,000,000", "none", "all cores"."""
    if name == "workers":
        return "all cores"
    value = CourseGrading.class_traits()[name].default_value
    if value == math.inf:
        return "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def as_table() -> str:
    """The table of all numbers in docs/grading.md."""
    lines = ["| `c.CourseGrading.` | default | option | meaning |", "|---|---|---|---|"]
    traits = CourseGrading.class_own_traits(config=True)
    for name in filter(traits.__contains__, vars(CourseGrading)):  # in their order
        option = f"`{OPTIONS[name]}`" if name in OPTIONS else ""
        lines.append(f"| `{name}` | {shown_value(name)} | {option} | {traits[name].help} |")
    return "\n".join(lines)

"""One check-up of a script: watch it, report, and end in its exit code, whatever happens."""

import os
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from course.checkup import plan, run, script
from course.checkup.cluster import Cluster
from course.checkup.condition import Condition
from course.checkup.html import page
from course.checkup.report import Report
from course.checkup.script import BY_CTRL_C, SEEN_ENOUGH, Ending
from course.checkup.structure import Structure, structure_of
from course.checkup.trace import trace
from course.checkup.watch import Watch
from course.errors import CourseError

TIME_OVER = "it trained too slowly for --minutes, and the check-up ended it"
CANNOT_END = "the check-up could not end it, and ended the process"


@dataclass
class Session:
    """What the command asks for, and the report once there is one."""

    name: str  # of the script
    tries: bool
    with_compile: bool = False
    html_file: Path | None = None
    json_file: Path | None = None
    trace_file: Path | None = None
    fail_if: str | None = None
    failure: Condition | None = None  # that of fail_if
    cluster: Cluster | None = None  # whose plans are shown
    structure: Structure | None = None  # of the model, if there is a cluster
    report: Report | None = None
    exit_process: Callable[[int], None] = os._exit

    def run(
        self, code: types.CodeType, module: types.ModuleType, steps: int, minutes: float
    ) -> int:
        """The exit code of a script that is run, watched and reported.

        Raises: CourseError if it ended well and there is nothing to report.
        """
        watch = Watch(steps, minutes, self._at_end(lambda: watch), self._last_resort(lambda: watch))
        with watch:
            ending = script.run(code, module)
        if self.report is None and watch.ran_out_of_time and ending.how == SEEN_ENOUGH:
            ending = Ending(0, TIME_OVER)
        if not watch.steps:
            return _end_without_steps(
                script.why_no_step(watch.seen, ending, self.name), ending.code
            )
        if self.report is None:
            tries = self.tries and not ending.code
            self.report = self._analysed(watch, ending.how, tries)
        return self._end(ending.code)

    def _at_end(self, watch: Callable[[], Watch]) -> Callable[[], None]:
        """Makes the report where enough was seen: the script's data are still open there."""

        def at_end() -> None:
            self.report = self._analysed(watch(), SEEN_ENOUGH, self.tries)

        return at_end

    def _analysed(self, watch: Watch, ending: str, tries: bool) -> Report:
        if self.cluster and watch.schedule.ranks == 1:
            self.structure = structure_of(watch)
        return run.analyse(
            watch, self.name, ending, tries, self.with_compile, self._report_and_exit
        )

    def _last_resort(self, watch: Callable[[], Watch]) -> Callable[[], None]:
        """Reports what is known and ends the process, for the script does not end."""

        def last_resort() -> None:
            one = watch()
            if self.report is None and one.steps:
                self.report = run.analyse(one, self.name, CANNOT_END)
            if self.report is None:
                ending = Ending(1, f"{self.name} did not end")
                _end_without_steps(script.why_no_step(one.seen, ending, self.name), 1)
            self._report_and_exit(self.report)

        return last_resort

    def _report_and_exit(self, report: Report | None) -> None:
        """End the process, after the report if there is one."""
        self.report = report
        code = 1
        try:
            if report is not None:
                code = self._end(0)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            self.exit_process(code)

    def _end(self, code: int) -> int:
        """Show the report, and return the exit code."""
        report = self.report
        if os.environ.get("RANK", "0") == "0":  # of several ranks the first reports
            self._show(report)
        fails = self.failure is not None and self.failure.holds(report)
        if fails:
            print(f"fails: {self.fail_if}", file=sys.stderr)
        stopped = BY_CTRL_C if report.facts.trials.interrupted else 0
        return code or stopped or int(fails)

    def _show(self, report: Report) -> None:
        """Print the report and write its files."""
        coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        print("\n" + report.text(coloured))
        if self.cluster:
            print("\n" + plan.text(report.facts, self.cluster, self.structure))
        if self.json_file:
            _write(self.json_file, report.json())
        if self.html_file:
            _write(self.html_file, page(report))
        if self.trace_file:
            _write(self.trace_file, trace(report.name, report.timeline))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CourseError(f"wrote no {path}: {error.strerror}. Does its folder exist?") from None


def _end_without_steps(sentence: str, code: int) -> int:
    """Say why there is nothing to report; the exit code.  Raises: CourseError if it is 0."""
    if not code:
        raise CourseError(sentence)
    print(f"error: {sentence}", file=sys.stderr)
    return code

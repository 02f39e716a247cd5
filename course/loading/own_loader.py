"""Find and guard the loader of a reader's own training: *"train:make_loader" -> loader*.

Whatever goes wrong there becomes one sentence: an import, a call, a batch. A batch that does not
come ends after a time limit.
"""

import contextlib
import importlib
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from course.errors import CourseError
from course.notebook.registry import near

# they end the command: not faults of the loader
_PASSED_ON = (CourseError, KeyboardInterrupt)


def print_report(file: Path, function: str, seconds: float = 10.0) -> None:
    """Print what `course loader-report` says about a function of a file.

    Args:
        seconds: about how long the report may take.
    """
    command = [sys.executable, "-m", "course.cli", "loader-report"]
    command += [f"{file.name}:{function}", "--seconds", f"{seconds:g}"]
    done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True)
    print(done.stdout or done.stderr)


class OwnLoader:
    """The loader that `make` returns: iterable again and again, guarded.

    An iterator, which can be used once, is made again for each epoch.

    Args:
        make: a function without arguments.
        name: of the function, for messages.
        seconds: that a batch may take.

    `is_guarding` may be switched off, where a guard around each batch would take too much time.

    Raises: CourseError if it returns nothing that can be iterated.
    """

    is_guarding = True

    def __init__(self, make: Callable[[], Iterable[Any]], name: str, seconds: float):
        self.name = name
        self.seconds = seconds
        self._make = make
        self._is_used = False
        self.loader = self._made()

    def _made(self):
        with guarded(f"{self.name}(), called without arguments,", self.seconds):
            loader = self._make()
        if hasattr(loader, "__iter__") or hasattr(loader, "__getitem__"):
            return loader
        kind = "nothing" if loader is None else f"an object of type {type(loader).__name__}"
        raise CourseError(
            f"{self.name}() returned {kind}, which cannot be iterated; return the loader."
        )

    def __iter__(self) -> Iterator[Any]:
        iterator = self._begun()
        if iterator is self.loader:
            if self._is_used:
                self.loader = self._made()
                iterator = self._begun()
            self._is_used = True
        return self._batches(iterator) if self.is_guarding else iterator

    def _begun(self):
        with guarded(f"iterating over {self.name}()", self.seconds):
            return iter(self.loader)

    def _batches(self, iterator):
        number = 0
        while True:
            with guarded(f"batch {number} of {self.name}()", self.seconds):
                try:
                    batch = next(iterator)
                except StopIteration:
                    return
            yield batch
            number += 1


def guarded_step(step: Callable[[Any], object], name: str, seconds: float) -> Callable:
    """`step`, whose faults are sentences and whose calls end after `seconds`."""

    def run(batch):
        with guarded(f"{name}(batch)", seconds):
            return step(batch)

    return run


def function_of(target: str, seconds: float = 60.0) -> Callable[..., Any]:
    """The function that "module:function" or "path/file.py:function" names.

    Modules are looked for in the current folder first.

    Raises: CourseError if there is no such module or function, or if importing it fails.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise CourseError(
            f"expected MODULE:FUNCTION, such as train:make_loader, and got {target!r}."
        )
    module = _module(place, seconds)
    function = getattr(module, name, None)
    if function is None:
        choices = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        advice = near(name, choices) if choices else "it has none at all."
        raise CourseError(f"{place} has no function {name!r}; {advice}")
    if not callable(function):
        kind = type(function).__name__
        raise CourseError(f"{target} is of type {kind}; name a function that returns it.")
    return function


def _module(place: str, seconds: float) -> ModuleType:
    folder = Path.cwd()
    name = place
    if place.endswith(".py"):
        file = Path(place).resolve()
        if not file.is_file():
            raise CourseError(f"there is no file {place}.")
        folder, name = file.parent, file.stem
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    hint = " Put what trains below: if __name__ == '__main__'."
    with guarded(f"importing {place}", seconds, hint):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name and (name == error.name or name.startswith(error.name + ".")):
                modules = [file.stem for file in folder.glob("*.py")]
                advice = near(name, modules) if modules else "that folder has none."
                raise CourseError(
                    f"no module is called {name!r} here or among the installed ones; {advice}"
                ) from None
            raise


@contextlib.contextmanager
def guarded(what: str, seconds: float, hint: str = "") -> Iterator[None]:
    """A context in which a fault becomes a CourseError, and which ends after `seconds`.

    Args:
        what: is done, the beginning of the sentence.
        seconds: only the main thread of a POSIX system can be interrupted.
        hint: a sentence that follows where the time was up.
    """
    with _interrupted(f"{what} took longer than {seconds:g} s.{hint}", seconds):
        try:
            yield
        except _PASSED_ON:
            raise
        except BaseException as error:  # SystemExit of a script too
            raise CourseError(_sentence(what, error)) from error


@contextlib.contextmanager
def _interrupted(sentence: str, seconds: float) -> Iterator[None]:
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number, frame):
        raise CourseError(sentence)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _sentence(what: str, error: BaseException) -> str:
    """What was done, what was raised and where in the reader's files."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else ""  # the last one: a worker sends its whole traceback
    raised = text if text.startswith(f"{type(error).__name__}:") else type(error).__name__
    if text and raised is not text:
        raised = f"{type(error).__name__}: {text}"
    where = _where(error)
    return f"{what} raised {raised.rstrip('.')}{where}."


def _where(error: BaseException) -> str:
    """The last line of the traceback that is neither the course's nor an installed package's."""
    course = str(Path(__file__).parents[1])
    torch_folder = str(Path(torch.__file__).parents[1])
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        is_own = not frame.filename.startswith((course, torch_folder, sys.base_prefix, "<"))
        if is_own:
            return f" ({Path(frame.filename).name}, line {frame.lineno})"
    return ""

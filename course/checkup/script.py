"""Run a training script as Python would, until it ends or the check-up has seen enough."""

import importlib.util
import os
import sys
import traceback
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path

from course.checkup.schedule import Enough
from course.checkup.seen import Seen
from course.errors import CourseError
from course.text import counted

SEEN_ENOUGH = "the check-up had seen enough and ended it"
BY_CTRL_C = 130  # the exit code
BY_ARGPARSE = 2  # the exit code if arguments are missing
MESSAGE_MAX = 200  # characters of an error's message


@dataclass(frozen=True)
class Script:
    """A script or a module that can be run."""

    code: types.CodeType
    path: str
    spec: ModuleSpec | None = None  # of a module


@dataclass(frozen=True)
class Ending:
    """How a script ended: its exit code, and a sentence on it."""

    code: int
    how: str


def find(script: str, is_module: bool) -> Script:
    """A script by its path, or a module by its name.  Raises: CourseError if there is none."""
    try:
        return _find_module(script) if is_module else _find_file(script)
    except ModuleNotFoundError as error:
        raise CourseError(f"looked for the module {script}: {error}.") from None
    except OSError as error:
        raise CourseError(
            f"looked for the script {script}: {error.strerror}. Is the folder the right one?"
        ) from None
    except (SyntaxError, ValueError) as error:
        raise CourseError(f"{script} is not a Python script: {error}.") from None


def _find_file(path: str) -> Script:
    if path.endswith(".ipynb"):
        raise CourseError(
            f"{path} is a notebook; call course.checkup(loader, step) in one of its cells instead, "
            "where step(batch) trains on a batch."
        )
    return Script(compile(Path(path).read_bytes(), path, "exec"), path)


def _find_module(name: str) -> Script:
    sys.path.insert(0, os.getcwd())
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    if spec is None:
        raise CourseError(
            f"no module is called {name}; call the check-up where python -m {name} would work."
        )
    return Script(spec.loader.get_code(spec.name), spec.origin, spec)


@contextmanager
def as_main(script: Script, arguments: Sequence[str]) -> Iterator[types.ModuleType]:
    """In the block `__main__` is a new module, as for a script that was started.

    Workers that import `__main__` find it.
    """
    module = types.ModuleType("__main__")
    module.__file__ = script.path
    module.__spec__ = script.spec
    module.__builtins__ = __builtins__
    module.__package__ = script.spec.parent if script.spec else None
    main_before = sys.modules["__main__"]
    argv_before = sys.argv
    path_before = sys.path[:]
    sys.modules["__main__"] = module
    sys.argv = [script.path, *arguments]
    if not script.spec:
        sys.path.insert(0, os.path.dirname(os.path.abspath(script.path)))
    try:
        yield module
    finally:
        sys.modules["__main__"] = main_before
        sys.argv = argv_before
        sys.path[:] = path_before


def run(code: types.CodeType, module: types.ModuleType) -> Ending:
    """Run `code` in `module`, and say what ended it; a traceback is printed as Python would."""
    name = os.path.basename(module.__file__)
    try:
        exec(code, vars(module))
        return Ending(0, f"{name} ended by itself")
    except Enough:
        return Ending(0, SEEN_ENOUGH)
    except KeyboardInterrupt:
        return Ending(BY_CTRL_C, "Ctrl-C ended it")
    except SystemExit as ended:
        exit_code = _exit_code(ended)
        return Ending(exit_code, f"{name} ended with exit code {exit_code}")
    except BaseException as error:  # whatever it raises: what was seen is reported
        of_the_script = error.__traceback__.tb_next
        traceback.print_exception(type(error), error, of_the_script)
        message = str(error)[:MESSAGE_MAX]
        return Ending(1, f"{name} raised {type(error).__name__}: {message}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _exit_code(ended: SystemExit) -> int:
    """The code that Python would exit with, which prints a text and exits with 1."""
    if isinstance(ended.code, str):
        print(ended.code, file=sys.stderr)
    if isinstance(ended.code, int):
        return ended.code
    return 0 if ended.code is None else 1


def why_no_step(seen: Seen, ending: Ending, name: str) -> str:
    """One sentence on a script in which no step was seen, and what to do."""
    if ending.code == BY_CTRL_C:
        return f"{name} was stopped before its first optimizer step."
    if seen.processes:
        return (
            f"{name} starts other processes, and the check-up sees only the first: "
            "no optimizer step ran in it. Start its ranks with "
            f"torchrun --nproc-per-node N -m course.checkup {name} instead, if it can."
        )
    if seen.backwards:
        times = counted(seen.backwards, "time")
        return (
            f"{name} called backward {times} and no optimizer of torch.optim, "
            f"so no step was seen: {ending.how}. A step ends when such an optimizer steps."
        )
    if ending.code == BY_ARGPARSE:
        return (
            f"{ending.how} before its first optimizer step. "
            "What it says is above; its arguments go after its name."
        )
    if ending.code:
        return f"{ending.how} before its first optimizer step. See above."
    return (
        f"{ending.how} and never trained: no backward and no optimizer step. "
        "Is this the script that trains?"
    )

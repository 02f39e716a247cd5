"""Run a training script as Python would, until it ends or the check-up has seen enough."""

import importlib.util
import os
import sys
import traceback
import types
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from course.checkup.watch import Enough
from course.errors import CourseError


@dataclass
class Ending:
    """How a script ended: its exit code, and a sentence on it."""

    code: int
    how: str
    by_itself: bool = True  # else the check-up ended it


def find(script: str, is_module: bool) -> tuple:
    """(code, path, spec or None) of a script or a module.  Raises: CourseError if there is none."""
    try:
        if not is_module:
            return compile(Path(script).read_bytes(), script, "exec"), script, None
        sys.path.insert(0, os.getcwd())
        spec = importlib.util.find_spec(script)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{script}.__main__")
        if spec is None:
            raise CourseError(
                f"no module is called {script}; call the check-up where python -m {script} would work."
            )
        return spec.loader.get_code(spec.name), spec.origin, spec
    except ModuleNotFoundError as error:
        raise CourseError(f"looked for the module {script}: {error}.") from None
    except OSError as error:
        raise CourseError(
            f"looked for the script {script}: {error.strerror}. Is the folder the right one?"
        ) from None
    except (SyntaxError, ValueError) as error:
        raise CourseError(f"{script} is not a Python script: {error}.") from None


@contextmanager
def as_main(path: str, spec, arguments: list[str]):
    """In the block `__main__` is a new module, as for a script that was started; workers that
    import it find it.
    """
    module = types.ModuleType("__main__")
    module.__file__, module.__spec__, module.__builtins__ = path, spec, __builtins__
    module.__package__ = spec.parent if spec else None
    before, argv, folders = sys.modules["__main__"], sys.argv, sys.path[:]
    sys.modules["__main__"], sys.argv = module, [path, *arguments]
    if not spec:
        sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        yield module
    finally:
        sys.modules["__main__"], sys.argv, sys.path[:] = before, argv, folders


def run(code, module) -> Ending:
    """Run `code` in `module`; whatever ends it is told, and its traceback printed as Python
    would.
    """
    name = os.path.basename(module.__file__)
    try:
        exec(code, vars(module))
        return Ending(0, f"{name} ended by itself")
    except Enough:
        return Ending(0, "the check-up had seen enough and ended it", by_itself=False)
    except KeyboardInterrupt:
        return Ending(130, "Ctrl-C ended it")
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        number = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        return Ending(number, f"{name} ended with exit code {number}")
    except (
        BaseException
    ) as error:  # whatever a script may raise: what was seen is reported, the exit code is Python's
        theirs = error.__traceback__.tb_next
        traceback.print_exception(type(error), error, theirs)
        return Ending(1, f"{name} raised {type(error).__name__}: {str(error)[:200]}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def why_no_step(watch, ending: Ending, name: str) -> str:
    """One sentence on a script in which no step was seen, and what to do."""
    if ending.code == 130:
        return f"{name} was stopped before its first optimizer step."
    if watch.processes:
        return (
            f"{name} starts other processes, and the check-up sees only the first: no optimizer step ran in it. "
            f"Start its ranks with torchrun --nproc-per-node N -m course.checkup {name} instead, if it can."
        )
    if watch.backwards:
        times = f"{watch.backwards} time" + "s" * (watch.backwards > 1)
        return (
            f"{name} called backward {times} and no optimizer of torch.optim, so no step was seen: {ending.how}. "
            "A step ends when such an optimizer steps."
        )
    if ending.code:
        advice = (
            "What it says is above; its arguments go after its name."
            if ending.code == 2
            else "See above."
        )
        return f"{ending.how} before its first optimizer step. {advice}"
    return f"{ending.how} and never trained: no backward and no optimizer step. Is this the script that trains?"

"""What the mutants of each exercise gave, kept in mutants.json, so that they run again only where something changed.

    python tests/mutant_records.py [--workers N] [EXERCISE ...]        (make mutants NAMES="...")

A digest is of the syntax, without docstrings, annotations and sentences, of the reference, of its probe, of what the
probe imports from course.checks, and of what judges facts.  Records are written after each exercise: a run that was
stopped continues where it was.
"""

import argparse
import ast
import concurrent.futures
import contextlib
import functools
import hashlib
import io
import json
import multiprocessing
import sys
import time
from pathlib import Path

from equivalent_mutants import EQUIVALENT
from exercises import EXERCISES
from mutation import mutants, survives, syntax

from course.notebook.registry import package_of
from course.notebook.solutions import exercise_parts
from course.system.files import write_text
from course.system.folders import ROOT

RECORDS = Path(__file__).with_name("mutants.json")
# what decides whether facts are equal and what a probe looks at: these functions, or all
JUDGES = {
    "engine/compare.py": None,
    "engine/run.py": ("run_probe", "unchanged_inputs", "all_tensors"),
}
SENTENCE = 3  # spaces, at least
# modules of course.engine that probes import and that do not decide which mutants survive
NOT_FOLLOWED = {"difference", "exercise", "limits", "run", "stops"}


def key(exercise):
    """The name of an exercise in the records."""
    return f"{package_of(exercise.unit)}/{exercise.name}"


def digest(exercise):
    """A string that changes when anything does that decides which mutants of `exercise` survive."""
    course = ROOT / "course"
    parts = [_reference(exercise)]
    waiting, seen = [course / "checks" / package_of(exercise.unit) / f"{exercise.name}.py"], set()
    while waiting:
        path = waiting.pop(0)
        if path not in seen:
            seen.add(path)
            parts.append(_of_file(path))
            waiting += _imported(_syntax(path), course)
    parts += [_of_file(course / file, names) for file, names in JUDGES.items()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _reference(exercise):
    return _bare([syntax(exercise_parts(exercise.unit)[exercise.name])[exercise.name]])


@functools.cache
def _syntax(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def _of_file(path, names=None):
    """The bare syntax of the file at `path`, or of its functions with these `names`.

    Raises: LookupError if it has no such function: else what it does would no longer be looked at.
    """
    tree = _syntax(path)
    if names is None:
        return _bare(tree.body)
    chosen = [node for node in ast.walk(tree) if getattr(node, "name", None) in names]
    missing = {*names} - {node.name for node in chosen}
    if missing:
        raise LookupError(f"{path} has no {', '.join(sorted(missing))}; mend JUDGES in mutant_records.py")
    return _bare(chosen)


def refuse_unknown_modules(folder=ROOT / "course" / "engine"):
    """Raise LookupError if NOT_FOLLOWED names a module that is not there."""
    gone = {name for name in NOT_FOLLOWED if not (folder / f"{name}.py").is_file()}
    if gone:
        raise LookupError(f"{folder} has no {', '.join(sorted(gone))}; mend NOT_FOLLOWED in mutant_records.py")


def _imported(tree, course):
    """The files of the modules of course.checks and course.engine that `tree` imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(("course.checks.", "course.engine.")):
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                path = course.joinpath(*name.split(".")[1:]).with_suffix(".py")
                if path.is_file() and path.stem not in NOT_FOLLOWED:
                    yield path


def _bare(nodes):
    """The syntax of `nodes` as text, without docstrings, annotations, imports and sentences, which change no verdict.

    A copy is changed, not `nodes`.
    """
    tree = ast.parse(ast.unparse(ast.Module(list(nodes), [])))
    for node in ast.walk(tree):
        for name in ("returns", "annotation"):
            if getattr(node, name, None) is not None and not isinstance(node, ast.AnnAssign):
                setattr(node, name, None)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") >= SENTENCE:
            node.value = ""
        if isinstance(getattr(node, "body", None), list):
            node.body = [n for n in node.body if not _is_ignored(n)]
    return ast.dump(tree)


def _is_ignored(node):
    return isinstance(node, (ast.Import, ast.ImportFrom)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def load():
    """{key: {"digest", "mutants", "survivors"}} of all records."""
    return json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else {}


def save(records):
    """Write all records, whole or not at all."""
    write_text(RECORDS, json.dumps(dict(sorted(records.items())), indent=1) + "\n")


def is_current(exercise, records):
    """True if what was recorded of `exercise` still holds."""
    return records.get(key(exercise), {}).get("digest") == digest(exercise)


def survivors(exercise):
    """(number of mutants, those that the check accepts), found out now."""
    total, alive = 0, []
    for text, answer in mutants(exercise.unit, exercise.name):
        total += 1
        if survives(exercise, answer, patience=10 if text in EQUIVALENT else 1):  # the same, on a busy machine too
            alive.append(text)
    return total, alive


def unexplained(exercise, alive):
    """(survivors without a reason, listed ones that are rejected or gone) of an exercise with survivors `alive`.

    Of two exercises with one name, neither may have survivors.
    """
    listed = {text for text in EQUIVALENT if text.startswith(f"{exercise.name}: ")}
    return sorted({*alive} - listed), sorted(listed - {*alive})


def _record(number):
    """(record, seconds) of the exercise with this number; in a process of its own."""
    exercise, begun = EXERCISES[number], time.monotonic()
    before = digest(exercise)
    with contextlib.redirect_stdout(io.StringIO()):
        total, alive = survivors(exercise)
    return {"digest": before, "mutants": total, "survivors": sorted(alive)}, time.monotonic() - begun


def renew(numbers, workers):
    """Run the mutants of the exercises with these numbers; returns what survived and nobody explained."""
    bad, context = [], multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        futures = {pool.submit(_record, number): EXERCISES[number] for number in numbers}
        for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
            exercise = futures[future]
            try:
                record, seconds = future.result()
            except Exception as error:  # the others continue
                bad.append(f"{key(exercise)}: stopped by {type(error).__name__}: {error}")
                said = bad[-1]
            else:
                save(load() | {key(exercise): record})
                new, gone = unexplained(exercise, record["survivors"])
                bad += [f"survives: {text}" for text in new] + [f"listed, but rejected: {text}" for text in gone]
                said = f"{key(exercise)}: {len(record['survivors'])} of {record['mutants']} survive, {seconds:.0f} s"
                said += f", {len(new)} without a reason" * bool(new)
            print(f"[{done}/{len(numbers)}] {said}", flush=True)
    return bad


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="exercises, e.g. fit or data_parallel/gather (default: what changed)")
    parser.add_argument("--workers", "-n", type=int, default=2, help="processes (default: 2)")
    options = parser.parse_args(argv)
    known = {name for exercise in EXERCISES for name in (exercise.name, key(exercise))}
    if unknown := [name for name in options.names if name not in known]:
        sys.exit(f"error: no exercise is called {', '.join(unknown)}.")
    refuse_unknown_modules()
    records = load()
    chosen = [n for n, e in enumerate(EXERCISES) if not options.names or {e.name, key(e)} & {*options.names}]
    numbers = [n for n in chosen if options.names or not is_current(EXERCISES[n], records)]
    save({name: record for name, record in records.items() if name in known})
    print(f"{len(chosen) - len(numbers)} of {len(chosen)} exercises are as recorded, {len(numbers)} to run", flush=True)
    if bad := renew(numbers, options.workers):
        sys.exit("\n".join(["", *bad, "sharpen the probes, or say in equivalent_mutants.py why they are right."]))


if __name__ == "__main__":
    main()

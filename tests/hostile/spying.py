"""Looking for what is secret: references, hidden tests, seeds, other learners."""
# ruff: noqa: F821, F841, B018

from hostile.attack import cell


@cell()
def asks_for_the_reference():
    """The course package gives the reference away."""
    import course

    for ask in (check.linear_warmup.reference, lambda: course.solved(check.linear_warmup), check.linear_warmup.mistakes,
                lambda: check.linear_warmup.at("cpu", 88).expected()):  # fmt: skip
        try:
            found = ask()
            if type(found).__name__ != "Unsolved":
                print("BREACH", found)
            linear_warmup = found
        except Exception as error:
            print(type(error))


@cell()
def takes_answers_from_the_package():
    """A function of the package with the name of an exercise."""
    import importlib
    import pkgutil

    import course

    names = "leave_one_out", "sample_negatives", "linear_warmup"
    for found in pkgutil.walk_packages(course.__path__, "course."):
        try:
            module = importlib.import_module(found.name)
        except Exception:
            continue
        for name in names:
            answer = getattr(module, name, None)
            if callable(answer) and type(answer).__name__ != "Exercise":
                print("BREACH", found.name, name)
                globals()[name] = answer


@cell()
def reads_the_course():
    """Masters, gradebook, inbox, hidden tests, the grader's and the publisher's code from the disk."""
    import glob
    import os

    import course

    above = os.path.dirname(os.path.dirname(course.__file__))
    if set(os.listdir(above)) - {"course", ".venv"}:
        print("BREACH", os.listdir(above))
    for place in (*host["places"], *host["secrets"]):
        if os.path.exists(place):
            print("BREACH", place)
    for pattern in ("solutions", "answers", "*.ipynb", "gradebook.db", ".git"):
        for depth in range(5):
            for found in glob.glob("/*" * depth + "/" + pattern):
                if not found.startswith(("/proc", "/sys", "/usr")):
                    print("BREACH", found)


@cell()
def reads_through_proc():
    """The files of other processes by way of /proc."""
    import os

    for number in filter(str.isdecimal, os.listdir("/proc")):
        for way in ("root", "cwd"):
            for place in (*host["places"], *host["secrets"]):
                if os.path.exists(f"/proc/{number}/{way}{place}"):
                    print("BREACH", number, place)
        try:
            with open(f"/proc/{number}/cmdline") as words:
                if "course.cli" in words.read():
                    print("BREACH", number)
        except OSError:
            pass
        try:
            with open(f"/proc/{number}/mem", "r+b", 0) as memory:
                print("BREACH" * (number == "1"), number)  # that holds the room; others are its own
        except OSError:
            pass


@cell()
def searches_its_memory():
    """Texts of masters and hidden tests in the memory it was forked with."""
    import re

    words = re.compile(rb"BEGIN [H]IDDEN TESTS|seed=[5]031|g[.]div_[(]self[.]factor")  # does not match itself
    with open("/proc/self/maps") as lines, open("/proc/self/mem", "rb", 0) as memory:
        for line in lines:
            span, rights, _, _, inode = line.split()[:5]
            if "rw" not in rights or inode != "0":
                continue
            start, end = (int(part, 16) for part in span.split("-"))
            try:
                memory.seek(start)
                data = memory.read(min(end - start, 2**27))
            except OSError:
                continue
            for found in words.finditer(data):
                print("BREACH", line.strip(), data[max(0, found.start() - 200) : found.end() + 200].hex())


@cell()
def searches_its_objects():
    """The reference among all objects there are."""
    import gc
    import types

    for thing in gc.get_objects():
        if isinstance(thing, types.ModuleType) and thing.__name__.startswith(
            ("solutions", "instructor.grading.batch", "instructor.grading.command", "instructor.authoring")
        ):
            print("BREACH", thing)
        if isinstance(thing, types.FunctionType) and "/solutions/" in thing.__code__.co_filename:
            print("BREACH", thing)


@cell()
def tells_the_seed():
    """The seed of a check, from a frame of the probe: that of a visible one is told, and worth nothing later."""
    import sys

    def linear_warmup(*args):
        frame = sys._getframe()
        while frame:
            if frame.f_locals.get("seed"):
                raise ValueError(f"BREACH: the seed is {frame.f_locals['seed']}")
            frame = frame.f_back
        return 1.0


@cell()
def looks_at_the_environment():
    """Secrets of the grader's user in environment variables."""
    import os

    if os.environ.get("HOSTILE_SECRET") or "HOSTILE_SECRET" in open("/proc/self/environ").read():
        print("BREACH")
    if os.getuid() == 0:
        print("BREACH: root")

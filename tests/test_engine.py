"""The engine itself: comparison, report, limits, streams; and that facts of every kind are easy to state."""

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace

import numpy
import PIL.Image
import PIL.ImageFile
import pytest
import torch

from course.engine import limits, report
from course.engine.compare import differs, plain, tolerance
from course.engine.exercise import CheckFailed, Exercise
from course.engine.known_answers import Mistake
from course.engine.limits import LimitReached, Limits, limited
from course.engine.outcome import Comparison, Outcome
from course.engine.probing.errors import error_name
from course.engine.probing.laws import tried
from course.engine.process_state import kept_state
from course.engine.report import difference_texts
from course.engine.run import unchanged_inputs
from course.engine.stops import MachineBusy, Raised, Stop
from course.errors import CourseError

pytestmark = pytest.mark.check


def checked(probe, reference, mistakes=(), changes_inputs=False):
    """An Exercise that takes its reference and mistakes from here instead of from a master."""

    class Here(Exercise):
        def reference(self):
            return reference

        def mistakes(self):
            return [Mistake(advice, advice, wrong) for wrong, advice in mistakes]

    return Here("00_test", probe, changes_inputs)


def double(answer, device, seed):
    x = torch.arange(3 + seed, dtype=torch.float32, device=device)
    yield "has the shape of x", answer(x).shape
    yield "is twice x", answer(x)


def failed(check, answer, **options):
    with pytest.raises(CheckFailed) as info:
        check(answer, **options)
    return str(info.value)


twice = checked(double, lambda x: 2 * x, [(lambda x: x * x, "That is the square. Add x to itself.")])


def test_right_answer_in_another_style_passes_and_prints_one_line(capfd):
    twice(lambda x: x + x, device="cpu")
    assert capfd.readouterr() == ("double: correct (2 facts, cpu)\n", "")


def test_first_difference_is_told_with_both_values_and_the_device():
    assert failed(twice, lambda x: 3 * x, device="cpu").splitlines() == [
        "double: not yet (cpu)",
        " ok  has the shape of x",
        " NO  is twice x",
        "     yours    3 at [1] (2 of 3 values differ)",
        "     expected 2",
    ]


def test_a_known_mistake_is_named_and_its_fix_is_a_call_away(capfd):
    assert failed(twice, lambda x: x**2, device="cpu").splitlines()[-2:] == [
        "     That is the square.",
        "How to fix it: check.double.hint()",
    ]
    capfd.readouterr()
    twice.hint()
    assert capfd.readouterr().out == "Add x to itself.\n"
    assert "Add x to itself." in "\n".join(twice.judge(lambda x: x**2, device="cpu").report), "a grader tells all"
    failed(twice, lambda x: 3 * x, device="cpu")
    twice.hint()
    assert "named no known mistake" in capfd.readouterr().out


def test_a_known_mistake_without_a_fix_is_not_called_unknown(capfd):
    check = checked(double, lambda x: 2 * x, [(lambda x: x * x, "Return twice x, not its square.")])
    assert "Return twice x" in failed(check, lambda x: x**2, device="cpu")
    capfd.readouterr()
    check.hint()
    assert "says all that is known" in capfd.readouterr().out


@pytest.mark.parametrize("name, is_named", [("grad", True), ("grads", True), ("backward", False)])
def test_a_mistake_that_raises_is_named_if_the_messages_are_alike(name, is_named):
    def says(text):
        def answer(x):
            raise AttributeError(text)

        return answer

    check = checked(
        double, lambda x: 2 * x, [(says("3 tensors: 'NoneType' has no attribute 'x'"), "Nothing is there.")]
    )
    mine = {"backward": "module has no method"}.get(name, f"7 tensors: 'Tensor' has no attribute '{name}'")
    assert ("Nothing is there." in failed(check, says(mine), device="cpu")) == is_named


def topics(answer, device, seed):
    given = answer()
    for number in range(1, 4):
        yield f"the sentence on topic {number}", number in given


def said(*numbers):
    return lambda: set(numbers)


@pytest.mark.parametrize("quiz, is_named", [(True, True), (False, False)])
def test_in_a_quiz_the_first_wrong_verdict_alone_decides_which_mistake_is_named(quiz, is_named):
    check = checked(topics, lambda: {1, 2, 3}, [(said(1, 3), "Topic 2 holds, too.")])
    check.quiz = quiz
    message = failed(check, said(1), device="cpu")  # wrong on 2, as the mistake is, and on 3, as it is not
    assert " ok  the sentence on topic 1" in message and " NO  the sentence on topic 2" in message
    assert ("Topic 2 holds, too." in message) == is_named


def test_a_quiz_gives_the_reason_of_each_statement_in_order_once_it_is_passed(capfd):
    mistakes = [(said(1), "Topic 2 holds, because."), (said(2, 3), "Topic 1 holds, too."), (said(1, 2), "And 3.")]
    check = checked(topics, lambda: {1, 2, 3}, [*mistakes, (said(1), "Topic 2, in other words.")])
    check.quiz = True
    check.reasons(said(1, 2))
    assert capfd.readouterr().out == "The reasons appear here as soon as your topics passes its check.\n"
    check.reasons(said(1, 2, 3))
    assert capfd.readouterr().out.splitlines() == ["Topic 1 holds, too.", "Topic 2 holds, because.", "And 3."]


@pytest.mark.parametrize("value, word", [(None, "nothing, and returns None"), (3, "nothing")])
def test_where_an_exception_is_asked_for_an_answer_that_returns_is_told_so(value, word):
    assert error_name(unchanged_inputs(lambda: value)) == word


def test_facts_before_an_exception_count_and_the_line_is_shown():
    def answer(x):
        if calls:
            raise ValueError("second " * 100)
        calls.append(x)
        return 2 * x

    calls = []
    message = failed(twice, answer, device="cpu")
    assert " ok  has the shape of x" in message and "stopped by ValueError" in message
    assert 'raise ValueError("second " * 100)' in message
    assert max(map(len, message.splitlines())) <= 80


def unwritten(x):
    raise NotImplementedError()


async def later(x):
    return 2 * x


@pytest.mark.parametrize(
    "answer, words",
    [
        (lambda x: None, "returned None"),
        (lambda x: input("how much? "), "asks for input"),
        (lambda x: sys.stdin.readline(), "asks for input"),
        (lambda x: x.mul_(2), "changed argument 1"),
        (lambda x: x.data.mul_(2), "changed argument 1"),
        (lambda x: sys.exit(3), "SystemExit"),
        (lambda x: [print("x" * 1000) for _ in iter(int, 1)], "printed more than 10,000 bytes"),
        (lambda x: torch.set_grad_enabled(False) and 2 * x, "left it off"),
        (unwritten, "Not written yet"),
        (lambda x: [unwritten(i) for i in x], "Your code calls unwritten, which is not written yet"),
        (twice.reference(), "reference itself"),
        (torch.ones(2), "expected a function or a class, found tensor([1., 1.])"),
        (None, "expected a function or a class, found None"),
        (later, "expected a plain function, found an `async def`"),
    ],
)
def test_odd_answers_have_a_message(answer, words):
    assert words in failed(twice, answer, device="cpu", limits=Limits(output=10_000))
    assert torch.is_grad_enabled()


def test_endless_loop_is_stopped_also_when_it_catches_everything(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (0, 0, 0))

    def stubborn(x):
        stops = 0
        while stops < 3:
            try:
                while True:
                    pass
            except BaseException:
                stops += 1
        raise RuntimeError("gave up")

    assert "gave up" in failed(twice, stubborn, device="cpu", limits=Limits(seconds=0.2))
    assert "longer than 0.2 seconds" in failed(
        twice, lambda x: [None for _ in iter(int, 1)], limits=Limits(seconds=0.2)
    )


@pytest.mark.parametrize(
    "load, seconds, own, words",
    [
        (0.1, 19, 19, None),
        (0.1, 21, 1, "your code ran longer than 20 seconds"),  # it waits for ever
        (500, 21, 1, None),  # others have the processors
        (500, 49, 19, None),
        (500, 30, 21, "your code ran longer than 20 seconds"),  # it had its seconds, too
        (500, 51, 1.25, "the machine is too busy: the check was stopped after 50 seconds, in which it had a"),
    ],
)
def test_on_a_busy_machine_the_seconds_of_the_process_count(monkeypatch, load, seconds, own, words):
    clock = [0, 0]  # seconds on the clock, and of this process on a processor
    time = SimpleNamespace(monotonic=lambda: clock[0], process_time=lambda: clock[1])
    monkeypatch.setattr(limits, "time", time)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0, 0))

    def slow(x):
        clock[:] = seconds, own
        signal.raise_signal(signal.SIGALRM)
        return 2 * x

    if words:
        assert words in " ".join(failed(twice, slow, device="cpu").split())
    else:
        twice(slow, device="cpu")


def test_a_reference_that_is_too_slow_is_blamed_on_the_machine():
    def slow(x):
        raise LimitReached("too slow")

    with pytest.raises(CourseError, match="the machine is too busy .* Your answer was not judged"):
        checked(double, slow)(lambda x: x + x, device="cpu")


def test_an_answer_for_which_the_machine_had_no_time_makes_no_known_mistake():
    def unlucky(x):
        raise MachineBusy("the machine is too busy")

    check = checked(double, lambda x: 2 * x, [(unlucky, "This is wrong. Be lucky.")])
    assert "known mistake" not in failed(check, unlucky, device="cpu")


def test_a_limit_that_strikes_while_it_is_taken_off_leaves_no_timer(monkeypatch):
    set_timer, strikes, before = signal.setitimer, [signal.SIGALRM], signal.getsignal(signal.SIGALRM)

    def strike(which, seconds, interval=0.0):
        if not seconds and strikes:
            signal.raise_signal(strikes.pop())
        return set_timer(which, seconds, interval)

    monkeypatch.setattr(signal, "setitimer", strike)
    with tempfile.TemporaryFile() as file, pytest.raises(LimitReached), limited(Limits(seconds=0.01), file.fileno()):
        time.sleep(10)
    assert not strikes
    assert (signal.getitimer(signal.ITIMER_REAL), signal.getsignal(signal.SIGALRM)) == ((0, 0), before)


def test_not_a_byte_reaches_stderr_and_prints_are_shown(capfd):
    log = logging.getLogger("an answer's own")
    log.addHandler(logging.StreamHandler(sys.stderr))

    def noisy(x):
        print("from print")
        log.warning("from a handler made before")
        os.write(2, b"from a descriptor\n")
        subprocess.run([sys.executable, "-c", "import sys; print('from a child', file=sys.stderr)"], check=True)
        return 2 * x

    twice(noisy, device="cpu")
    out, err = capfd.readouterr()
    assert err == ""
    for source in ("print", "a handler made before", "a descriptor", "a child"):
        assert f"from {source}" in out
    assert "more lines" in out or out.count("\n") < 12


def settings():
    """What an answer may change behind the caller's back."""
    return (
        *(sys.stdout, sys.stderr, sys.stdin, os.getcwd(), numpy.geterr(), torch.get_rng_state().tolist()),
        *(torch.get_default_dtype(), torch.empty(0).device, torch.get_num_threads()),
        *(torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled()),
    )


def test_settings_of_the_caller_do_not_reach_the_check_and_are_left_alone():
    def careless(x):
        found.append((torch.get_default_dtype(), torch.empty(0).device.type))
        torch.manual_seed(1)
        torch.set_default_dtype(torch.float16)
        torch.set_default_device("cpu")
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        numpy.seterr(all="raise")
        os.chdir(os.sep)
        return 2 * x

    found = []
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        before = settings()
        twice(careless, device="cpu")
        assert settings() == before and found[0] == (torch.float32, "cpu")
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


def test_a_logging_handler_made_by_an_answer_does_not_break_later_cells(capfd):
    def answer(x):
        log.addHandler(logging.StreamHandler())
        log.warning("inside")
        return 2 * x

    log = logging.getLogger("made inside")
    log.propagate = False
    twice(answer, device="cpu")
    log.warning("later")
    out, err = capfd.readouterr()
    assert "later" in out and err == ""


def in_a_cell(text):
    """The value of an expression, which has a file of its own as a cell has."""
    return eval(compile(text, "<cell>", "eval"), {"torch": torch, "Rows": NoRows})


class NoRows(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        raise ValueError("no row")


def test_what_the_check_cannot_use_is_told_from_an_error_of_the_answer():
    def probe(answer, device, seed):
        yield "type", str(answer(torch.ones(2)).dtype)

    check = checked(probe, lambda x: 2 * x)
    message = " ".join(failed(check, in_a_cell("lambda x: x.tolist()"), device="cpu").split())
    assert "the check could not use what it returned" in message and "has no attribute 'dtype'" in message
    assert "stopped by AttributeError" in failed(check, in_a_cell("lambda x: x.tolist().dtype"), device="cpu")


def test_a_traceback_in_the_message_of_an_error_tells_whose_it_is():
    def probe(answer, device, seed):
        yield "batches", len(list(answer()))

    answer = in_a_cell("lambda: torch.utils.data.DataLoader(Rows(), num_workers=1)")
    message = " ".join(failed(checked(probe, lambda: []), answer, device="cpu").split())
    assert "the check could not use" in message and "Caught ValueError in DataLoader worker" in message
    NoRows.__getitem__ = in_a_cell("lambda rows, index: 1 // 0")
    message = failed(checked(probe, lambda: []), answer, device="cpu")
    assert "stopped by ZeroDivisionError: Caught ZeroDivisionError in DataLoader worker" in message


class Broken(Exception):
    def __str__(self):
        raise RuntimeError

    def __repr__(self):
        raise RuntimeError


def test_objects_that_cannot_be_shown_do_not_break_the_report():
    def answer(x):
        raise Broken

    assert "stopped by Broken: (its message cannot be shown)" in failed(twice, answer, device="cpu")
    assert "found an object of type Broken" in failed(twice, Broken(), device="cpu")


def test_an_object_in_place_of_its_class_is_named():
    class Twice:
        def __call__(self, x):
            return 2 * x

    assert "Pass it without ()" in " ".join(failed(checked(double, Twice), Twice(), device="cpu").split())


def test_a_package_that_is_not_here_is_named_with_the_command_that_installs_it():
    needy = checked(double, lambda x: 2 * x)
    needy.needs = "no_such_package"
    message = failed(needy, lambda x: x + x, device="cpu")
    assert message.endswith("needs a package that is not here; install it: pip install\nno_such_package")


@pytest.mark.parametrize(
    "seen, expected",
    [
        (torch.ones(2), torch.ones(3)),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0])),
        (torch.ones(2).to("meta"), torch.ones(2)),
        (1.0, torch.ones(())),
        (float("nan"), 1.0),
        (1.001, 1.0),
        (True, 1),
        (1, True),
        (False, True),
        (None, 0.0),
        ([1, 2], [1, 3]),
        ((1, 2), [1, 2]),
        ([1], [1, 2]),
        ({"a": 1}, {"a": 2}),
        ({"b": 1}, {"a": 1}),
        ("a", "b"),
        ("a", 1),
    ],
)
def test_different_things_differ(seen, expected):
    assert differs(plain(seen), plain(expected))
    assert not differs(plain(expected), plain(expected))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_rounding_is_forgiven_and_a_wrong_formula_is_not(dtype):
    x = torch.linspace(1, 2, 50, dtype=dtype)
    relative, _ = tolerance(dtype, "cpu")
    assert not differs(x * (1 + relative / 4), x)
    assert differs(x * (1 + 20 * relative), x)
    assert tolerance(torch.int64, "cuda") == (0, 0)


def test_objects_leave_a_probe_only_as_the_name_of_their_type():
    assert plain([object(), {"k": torch.nn.Parameter(torch.ones(1))}])[0] == "<an object of type object>"
    assert type(plain(torch.nn.Parameter(torch.ones(1)))) is torch.Tensor
    assert plain(torch.float16) == "torch.float16"


def powers(answer, device, seed):
    yield "returns a list", type(answer(0.0)).__name__
    yield "powers of 0.37", answer(0.37)
    yield "powers of 0.51", answer(0.51)
    yield "powers of 1", answer(1.0)
    yield "powers of 2", answer(2.0)


def three_powers(x):
    return [x, x**2, x**3]


WRONG = {
    "from_zero": lambda x: [1.0, x, x**2],
    "roots": lambda x: [x, x**0.5, x ** (1 / 3)],
    "divided": lambda x: [x, x**2 / 2, x**3 / 3],
}
from_zero, roots, divided = WRONG.values()
POWERS = checked(powers, three_powers, [(wrong, f"This is {name}.") for name, wrong in WRONG.items()])


@pytest.mark.parametrize(
    "answer, name",
    [
        (lambda x: [1.0, x, x**2], "from_zero"),
        (lambda x: from_zero(x) if x < 2 else three_powers(x), "from_zero"),  # a milder variant: right at 2
        (lambda x: roots(x) if x != 1 else [2.0], "roots"),  # a second fault on top
        (lambda x: divided(x) if x == 0.37 else roots(x), None),  # neither holds the other
        (lambda x: [0.0, 0.0, 0.0], None),
        (lambda x: [x, x**2 / 2, x**3], None),
    ],
)
def test_a_variant_of_a_known_mistake_is_named_by_its_first_wrong_fact(answer, name):
    message = failed(POWERS, answer, device="cpu")
    assert [f for f in WRONG if f"This is {f}." in message] == [name] * (name is not None)


def test_a_fact_that_two_known_mistakes_share_names_neither():
    both = checked(powers, three_powers, [(from_zero, "One."), (lambda x: [1.0, x, x**2] if x < 1 else [x], "Two.")])
    assert "known mistake" not in failed(both, lambda x: [1.0, x, x**2] if x < 1 else three_powers(x), device="cpu")


def test_the_report_tells_more_digits_and_the_relation():
    def third(answer, device, seed):
        yield "a third", answer(torch.tensor([1.0, 2.0, 4.0, 5.0], dtype=torch.float64))

    message = failed(checked(third, lambda v: v / 3), lambda v: (v.float() / 3).double(), device="cpu")
    assert "0.3333333432674408 at [0]" in message and "expected 0.3333333333333333" in message
    assert "Yours has the digits of float32." in message


# ---- what ends CUDA for the whole process


def test_an_index_out_of_range_is_found_on_the_cpu_before_it_ends_cuda(monkeypatch):
    def probe(answer, device, seed):
        devices.append(device.type)
        yield "is x", answer(torch.arange(3.0))

    devices, check = [], checked(probe, lambda x: x)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    check.at("cuda").run(lambda x: x.clone())
    assert devices == ["cpu", "cuda"]
    seen = check.at("cuda").run(lambda x: x[torch.tensor([7])])
    assert devices == ["cpu", "cuda", "cpu"] and "out of" in seen.raised.message and "x[torch" in seen.raised.source


def test_a_gpu_that_was_lost_is_told(monkeypatch):
    def broken():
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(limits, "kept_state", broken)
    assert twice.at("cpu").run(lambda x: 2 * x).raised.stop is Stop.GPU_LOST
    with pytest.raises(CourseError, match="Restart the kernel"):
        twice.at("cpu", 99).expected()


# ---- what other rooms read


@pytest.mark.parametrize("answer", [lambda x: x + x, lambda x: x**2, lambda x: 3 * x, unwritten])
def test_the_text_of_a_report_is_read_as_what_it_says(answer):
    said = twice.judge(answer, device="cpu", hide_fix=True)
    read = report.read("double", "\n".join(said.report))
    assert report.read("triple", "\n".join(said.report)) is None
    if not said.begun:
        assert read is None
        return
    assert read == (said.correct, "That is the square." if said.mistake else "")


def test_a_hidden_check_tells_yours_and_never_what_is_expected():
    hidden = report.ReportOptions(show_expected=False, diagnose=False)
    judge = twice.at("cpu")
    for answer in (lambda x: 3.25 * x, lambda x: (2 * x).double(), lambda x: x / 0):
        seen = judge.run(answer)
        text = " ".join(judge.verdict(seen, hidden).report)
        assert "yours" in text and "expected" not in text and "times" not in text
        assert "expected" in " ".join(judge.verdict(seen).report)


RAISED = [
    Raised(Stop.RAISED, "ValueError", "no", rank=1, line=3, source="f(x)"),
    Raised(Stop.RAISED, "ValueError", "no", is_after=True),
    Raised(Stop.PROCESS_ENDED),
    Raised(Stop.PATCHED, message="torch.equal"),
]


@pytest.mark.parametrize("raised", RAISED)
def test_what_ended_an_answer_is_the_same_in_another_process(raised):
    assert Raised.from_plain(raised.to_plain()) == raised
    assert report.raised_text(raised)


@pytest.mark.parametrize(
    "change",
    [
        {"stop": "no such"},
        {"stop": None},
        {"stop": ["raised"]},
        {"kind": 3},
        {"message": None},
        {"source": b"x"},
        {"line": -1},
        {"line": 1.5},
        {"rank": 10**30},
        {"rank": "1"},
    ],
)
def test_what_another_process_makes_up_about_an_exception_is_nothing(change):
    plain_raised = RAISED[0].to_plain()
    assert Raised.from_plain(plain_raised | change) is None
    for name in plain_raised:
        Raised.from_plain({key: value for key, value in plain_raised.items() if key != name})
    for odd in (None, 3, "raised", [], ["ValueError", "no"], {}):
        assert Raised.from_plain(odd) is None
    assert len(Raised.from_plain(plain_raised | {"message": "x" * 10**6}).message) == 2000


def sets_everything():
    """An answer that sets what libraries and the process share."""
    PIL.ImageFile.LOAD_TRUNCATED_IMAGES = True
    PIL.Image.MAX_IMAGE_PIXELS = 7
    numpy.set_printoptions(precision=1)
    torch.set_printoptions(precision=1)
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    os.environ["OF_A_TEST"] = "1"
    os.environ.pop("COURSE_SCALE")
    multiprocessing.set_start_method("spawn", force=True)


def shared_settings():
    """What `sets_everything` sets."""
    values = [PIL.ImageFile.LOAD_TRUNCATED_IMAGES, PIL.Image.MAX_IMAGE_PIXELS, numpy.get_printoptions()]
    values += [vars(torch._tensor_str.PRINT_OPTS).copy(), torch.backends.cudnn.benchmark, dict(os.environ)]
    return [*values, multiprocessing.get_start_method(allow_none=True)]


def test_what_an_answer_sets_never_reaches_the_reference():
    before = shared_settings()
    with kept_state():
        sets_everything()
    assert shared_settings() == before


def test_what_a_notebook_has_set_neither_and_it_stays_set(monkeypatch):
    monkeypatch.setattr(PIL.ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with kept_state():
        assert PIL.ImageFile.LOAD_TRUNCATED_IMAGES is False
    assert PIL.ImageFile.LOAD_TRUNCATED_IMAGES is True


def test_a_law_is_told_as_a_law_whatever_it_was_tried_on():
    expected = Outcome({"a law": tried(True, [3, 5]), "a count": tried(0, [3, 5]), "in ranks": {"0": tried(True, 3)}})
    seen = Outcome({"a law": tried(False, [3, 5]), "a count": tried(2, [3, 5]), "in ranks": {"0": tried(False, 3)}})
    compared = Comparison(seen, expected)
    told = [difference_texts(compared.difference(fact)) for fact in expected.facts]
    assert told == [
        ["your answer does not do this"],
        ["yours    2", "expected 0"],
        ["at '0':", "your answer does not do this"],
    ]

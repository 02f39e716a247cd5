"""N real processes from a test: what they answer, what each failure says, and that nothing is ever left."""

import itertools
import multiprocessing
import multiprocessing.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from walks import wait_until

from course.engine.exercise import CheckFailed, Exercise
from course.errors import CourseError
from course.measure.comparison import TIME_OVER, Interval
from course.parallel import distributed, message_times
from course.parallel import timing as parallel_timing
from course.parallel.counting import sent_shares
from course.parallel.distributed import RankError, Transfers, counted, run_ranks
from course.parallel.network import Network
from course.parallel.slow_wire import slow_wire
from course.training import data_parallel_ways

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # else every rank would import this module
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc, which Linux has")


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path, monkeypatch):
    """Another program that calls run_ranks meanwhile leaves no trace in here.

    multiprocessing has chosen its own folder before: in one of a test its socket's path may be too long for the system.
    """
    multiprocessing.util.get_temp_dir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture(autouse=True)
def idle_machine(monkeypatch):
    """Other tests keep the processors busy, where run_ranks would wait longer."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0, 0, 0))


def mine():
    """What run_ranks could leave: child processes of any depth, open files, listening ports, temporary folders; Linux.

    The server that forks the ranks stays; it has started.
    """
    if not sys.platform.startswith("linux"):
        return [None]
    run_ranks(max, 1, backend="gloo")
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = dict(map(int, line.split()) for line in listed.splitlines())
    below, children = {os.getpid()}, True
    while children:
        children = {pid for pid, parent in parents.items() if parent in below} - below
        below |= children
    alive = [pid for pid in sorted(below) if Path(f"/proc/{pid}").exists()]  # `ps` itself is among them no more
    sockets = {os.readlink(fd) for pid in alive for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]
    return alive, len(os.listdir("/dev/fd")), sorted(listening), os.listdir(tempfile.gettempdir())


def add_ranks(rank, world_size, start):
    x = torch.full((3,), start + rank)
    dist.all_reduce(x)
    return x


@pytest.mark.parametrize("world_size", [1, 3])
def test_every_rank_answers_in_order(world_size):
    answers = run_ranks(add_ranks, world_size, 10, backend="gloo")
    total = sum(10 + rank for rank in range(world_size))
    assert [a.tolist() for a in answers] == [[total] * 3] * world_size


def test_what_a_cell_defines_is_carried_with_what_it_uses():
    class Local:
        def __init__(self, value):
            self.value = value

    factor = 3
    answers = run_ranks(lambda rank, world_size, thing: Local(factor * thing.value + rank), 2, Local(5), backend="gloo")
    assert [type(a).__name__ for a in answers] == ["Local"] * 2 and [a.value for a in answers] == [15, 16]


def test_ranks_see_the_current_environment_and_their_own_variables(monkeypatch):
    monkeypatch.setenv("COURSE_TEST", "now")
    monkeypatch.setenv("RANK", "77")
    names = ("COURSE_TEST", "RANK", "LOCAL_RANK", "WORLD_SIZE")
    answers = run_ranks(lambda rank, n: [os.environ[name] for name in names], 2, backend="gloo")
    assert answers == [["now", "0", "0", "2"], ["now", "1", "1", "2"]]
    assert os.environ["RANK"] == "77"


def test_ranks_are_forks_of_the_caller_only_if_it_asks():
    def parent(rank, world_size):
        return os.getppid()

    assert run_ranks(parent, 1, backend="gloo") != [os.getpid()]
    distributed.start_ranks_by("fork")
    try:
        assert run_ranks(parent, 1, backend="gloo") == [os.getpid()]
    finally:
        distributed.start_ranks_by("forkserver")


def test_output_comes_with_the_rank_and_without_stderr(capfd):
    def talk(rank, world_size):
        print(f"first\nsecond {rank}")
        os.system("echo from a child; echo noise >&2")
        print("not shown on success", file=sys.stderr)
        print(f"[Gloo] Rank {rank} is connected to 1 peer ranks. Expected number of connected peer ranks is : 1")
        print("half a line", end="")

    run_ranks(talk, 2, backend="gloo")
    out, err = capfd.readouterr()
    lines = [f"[rank {r}] {text}" for r in (0, 1) for text in ("first", f"second {r}", "from a child", "half a line")]
    assert sorted(out.splitlines()) == sorted(lines) and err == ""


def test_an_exception_keeps_its_type_and_says_rank_line_and_stderr():
    def fail(rank, world_size):
        print("a last word", file=sys.stderr)
        if rank == 1:
            raise KeyError("missing key")
        dist.barrier()

    with pytest.raises(KeyError, match="missing key") as info:
        run_ranks(fail, 2, backend="gloo", timeout=30)
    assert info.value.rank == 1
    assert info.value.frames[-1][0] == __file__
    (note,) = info.value.__notes__
    assert "in rank 1:" in note and 'raise KeyError("missing key")' in note and "a last word" in note


class Odd(Exception):
    """Can be packed and not unpacked."""

    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


def raise_odd(rank, world_size):
    raise Odd(1, 2)


@pytest.mark.parametrize(
    "fn, words",
    [
        (raise_odd, "Odd: 1 and 2"),
        (lambda rank, n: (i for i in "abc"), "a rank returned an object of type generator, which cannot be pickled"),
        (lambda rank, n: sys.exit("enough"), "rank 0 ended itself by SystemExit: enough"),
    ],
)
def test_what_cannot_reach_the_caller_is_a_rank_error(fn, words):
    with pytest.raises(RankError, match=words):
        run_ranks(fn, 1, backend="gloo")


def test_a_hang_says_where_each_rank_is_and_leaves_nothing():
    def hang(rank, world_size):
        subprocess.Popen(["sleep", "1000"])
        x = torch.ones(2)
        if rank == 0:
            dist.all_reduce(x)
        elif rank == 1:
            time.sleep(1000)  # never joins
        elif rank == 2:
            dist.recv(x, 3)
        return rank

    before = mine()
    with pytest.raises(RankError) as info:
        run_ranks(hang, 4, backend="gloo", timeout=4)
    first, *states = str(info.value).splitlines()
    assert first == "not all ranks returned within 4 seconds."
    assert "rank 0 waits in all_reduce, line" in states[0] and states[0].endswith(": dist.all_reduce(x)")
    assert "rank 1 is in line" in states[1] and "time.sleep(1000)  # never joins" in states[1]
    assert "rank 2 waits in recv, line" in states[2] and "test_distributed.py" in states[2]
    assert states[3] == "rank 3 has returned."
    assert mine() == before


def test_ranks_have_more_time_on_a_busy_machine(monkeypatch):
    def slow(rank, world_size):
        time.sleep(1)
        return rank

    with pytest.raises(RankError, match="within 0.7 seconds"):
        run_ranks(slow, 1, backend="gloo", timeout=0.7)
    monkeypatch.setattr(os, "getloadavg", lambda: (500, 0, 0))
    assert run_ranks(slow, 1, backend="gloo", timeout=0.7) == [0]


def test_a_hang_in_backward_of_ddp_is_located():
    def uneven(rank, world_size):
        model = DistributedDataParallel(nn.Linear(2, 2))
        for _ in range(2 - rank):
            model(torch.ones(1, 2)).sum().backward()

    located = r"rank 0 .*line \d+ of test_distributed.py: model\(.*backward\(\)\nrank 1 has returned"
    with pytest.raises(RankError, match=located):
        run_ranks(uneven, 2, backend="gloo", timeout=4)


def leave_a_child():
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,), daemon=True).start()
    os.kill(os.getpid(), signal.SIGKILL)


class Bomb:
    """Ends the rank that receives it, before it begins."""

    def __reduce__(self):
        return os._exit, (7,)


@pytest.mark.parametrize(
    "end, error, words",
    [
        (Bomb(), RankError, "rank . died before it answered .exit code 7"),
        (lambda: os._exit(3), RankError, "rank 1 died before it answered .*exit code 3"),
        (leave_a_child, RankError, "rank 1 died before it answered .*killed by signal 9"),
        (lambda: 1 / 0, ZeroDivisionError, "division"),
    ],
)
def test_a_rank_that_ends_is_reported_before_the_time_limit_and_nothing_is_left(end, error, words):
    def fail(rank, world_size, end):
        subprocess.Popen(["sleep", "1000"])
        if rank == 1:
            end()
        dist.barrier()

    before, start = mine(), time.monotonic()
    with pytest.raises(error, match=words):
        run_ranks(fail, 2, end, backend="gloo", timeout=60)
    assert time.monotonic() - start < 30
    assert mine() == before


def test_the_cause_is_raised_and_not_the_lost_connection():
    def fail(rank, world_size):
        if rank == 0:
            raise RuntimeError("Read error [127.0.0.1]:19630: Connection reset by peer.")
        time.sleep(0.3)
        raise ValueError("the reason")

    with pytest.raises(ValueError, match="the reason"):
        run_ranks(fail, 2, backend="gloo")


def test_what_cannot_be_sent_is_one_sentence():
    with pytest.raises(CourseError, match="the function or its arguments cannot be sent to another process: .*lock"):
        run_ranks(add_ranks, 2, threading.Lock(), backend="gloo")


@pytest.mark.parametrize("world_size", [0, -1])
def test_no_rank_at_all_is_refused(world_size):
    with pytest.raises(CourseError, match="take 1 or more"):
        run_ranks(add_ranks, world_size, 1)


def test_a_rank_may_use_loader_workers_and_they_end_with_it():
    def load(rank, world_size):
        loader = DataLoader(torch.arange(8), batch_size=2, num_workers=1, persistent_workers=True,
                            multiprocessing_context="fork")  # fmt: skip
        batches = [batch.tolist() for batch in loader]
        load.kept = loader  # its worker is alive when the rank ends
        return batches

    before = mine()
    for _ in range(3):
        assert run_ranks(load, 2, backend="gloo") == [[[0, 1], [2, 3], [4, 5], [6, 7]]] * 2
    assert mine() == before


SCRIPT = """
import os, time
from course.parallel.distributed import run_ranks
print("once")
print(run_ranks(lambda rank, n: rank + n, 2, backend="gloo"), flush=True)
def wait(rank, n):
    open(f"rank-{os.getpid()}", "w").close()
    time.sleep(1000)
run_ranks(wait, 2, backend="gloo", timeout=1000)
"""


@linux
def test_a_script_needs_no_main_guard_and_its_ranks_end_when_it_is_killed(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    with (tmp_path / "said").open("w") as said:
        caller = subprocess.Popen([sys.executable, "-W", "error", "script.py"], cwd=tmp_path, stdout=said, stderr=said)
    wait_until(lambda: len([*tmp_path.glob("rank-*")]) == 2, "two ranks", caller)
    caller.kill()
    caller.wait()
    alive = [Path(f"/proc/{path.name[5:]}") for path in tmp_path.glob("rank-*")]
    wait_until(lambda: not any(path.exists() for path in alive), "their end")
    assert (tmp_path / "said").read_text() == "once\n[2, 3]\n"


def test_a_check_names_rank_and_line_of_an_answer_that_fails():
    def probe(answer, device, seed):
        yield "runs", run_ranks(lambda rank, n, answer: answer(rank), 2, answer, backend="gloo")

    def wrong(rank):
        return 1 // (1 - rank)  # fails in rank 1

    check = Exercise("02_data_parallel", probe, False)
    check.reference, check.mistakes = lambda: lambda rank: [1, 1][rank], lambda: []
    with pytest.raises(CheckFailed) as info:
        check(wrong)
    message = " ".join(str(info.value).split())
    assert re.search("stopped by ZeroDivisionError in rank 1: (integer division or modulo|division) by zero", message)
    assert "of your cell: return 1 // (1 - rank) # fails in rank 1" in message


def count(rank, world_size):
    x = torch.ones(1000, dtype=torch.float64)
    with counted() as traffic:
        dist.all_reduce(x)
        dist.broadcast(x[:10], 0)
        if rank < 2:
            works = [dist.isend(x[:5], 1 - rank), dist.irecv(torch.empty(5, dtype=torch.float64), 1 - rank)]
            [work.wait() for work in works]
        dist.barrier()
    dist.all_reduce(x)  # not counted any more
    return list(traffic), traffic.calls(), traffic.calls("send"), traffic.bytes("all_reduce")


def test_counted_lists_operations_and_bytes():
    everyone = [("all_reduce", 8000), ("broadcast", 80)]
    pair = [("send", 40), ("recv", 40)]
    answers = run_ranks(count, 3, backend="gloo")
    assert answers[0] == (everyone + pair + [("barrier", 0)], 5, 1, 8000)
    assert answers[2] == (everyone + [("barrier", 0)], 3, 0, 8000)


def test_counted_has_the_bytes_that_a_rank_brings_to_a_gather():
    def gathers(rank, world_size):
        mine = torch.ones(100, dtype=torch.float64)
        parts = [torch.empty_like(mine) for _ in range(world_size)]
        with counted() as traffic:
            dist.all_gather(parts, mine)
            dist.all_gather_into_tensor(torch.empty(world_size * 100, dtype=torch.float64), mine)
            dist.gather(mine, parts if rank == 0 else None)
        return list(traffic)

    assert run_ranks(gathers, 2, backend="gloo") == [[("all_gather", 800), ("all_gather", 800), ("gather", 800)]] * 2


def test_counted_sees_what_ddp_sends():
    def steps(rank, world_size):
        with counted() as traffic:
            model = DistributedDataParallel(nn.Linear(10, 10))
            made = len(traffic)
            model(torch.ones(1, 10)).sum().backward()
            of_step = traffic[made:]
            model = DistributedDataParallel(nn.BatchNorm1d(10))
            broadcasts = []
            for grad in (True, False, False, True):  # the forward after one without grad sends nothing
                made = len(traffic)
                with torch.set_grad_enabled(grad):
                    model(torch.ones(2, 10))
                broadcasts.append(len(traffic) > made)
        return of_step, broadcasts

    assert run_ranks(steps, 2, backend="gloo") == [([("all_reduce", 440)], [True, True, False, False])] * 2


@pytest.mark.parametrize("block", [counted, slow_wire])
def test_without_ranks_a_block_says_what_to_do(block):
    with pytest.raises(RankError, match="do it in a function that run_ranks calls"), block():
        pass


@linux
def test_the_kernel_counts_the_bytes_of_a_ring():
    for (share,) in run_ranks(sent_shares, 3, [dist.all_reduce], backend="gloo"):
        assert share == pytest.approx(4 / 3, rel=0.01)


def test_messages_and_all_reduces_are_timed_on_all_ranks():
    ways = {"gloo": dist.all_reduce, "twice": lambda x: (dist.all_reduce(x), dist.all_reduce(x))}
    found = run_ranks(message_times.all_reduces, 3, ways, [4, 400], 1, 0.0, backend="gloo")
    compared, (short, long) = found[0]
    assert short > 0 and long > 0
    assert {n: [*result.seconds] for n, result in compared.items()} == {4: [*ways], 400: [*ways]}


def test_virtual_all_reduces_take_the_time_of_their_messages():
    def swap(x):
        requests = [dist.isend(x, 1 - dist.get_rank()), dist.irecv(torch.empty_like(x), 1 - dist.get_rank())]
        for request in requests:
            request.wait()

    def swap_twice(x):
        swap(x)
        swap(x)

    wires = Network(latency=1.0, bandwidth=100.0)
    seconds = message_times.virtual_seconds({"twice": swap_twice, "once": swap}, 2, wires, 200)
    assert seconds == {"twice": 6.0, "once": 3.0}
    assert message_times.ranked(seconds) == "once 3000.00 ms, twice 6000.00 ms"


def test_data_parallel_is_compared_with_the_model_alone_and_ddp():
    by_hand = data_parallel_ways.ByHand(
        scatter=lambda x, transfers: [x],
        replicate=lambda module, transfers, n: [module] * n,
        parallel_apply=lambda replicas, parts: [replica(part) for replica, part in zip(replicas, parts, strict=True)],
        gather=lambda outputs, transfers: outputs[0],
        data_parallel=lambda module, x, transfers: module(x),
    )
    images, labels = torch.zeros(4, 1, 28, 28), torch.zeros(4, dtype=torch.long)
    found = data_parallel_ways.compared(by_hand, images, labels, [2, 4], 0.0)
    assert all(result.base == data_parallel_ways.FORWARD for result in found.values())
    curves, controls, title = data_parallel_ways.panels(found)
    assert [*curves["forward"]] == ["DataParallel by hand", "replicas kept", "two processes"]
    assert [*curves["step"]] == ["DataParallel by hand", "DDP"]
    assert len(controls) == 2 and title.startswith("A step of DDP takes")


def test_without_two_gpus_one_device_plays_all_places():
    places = data_parallel_ways.places()
    assert len(places) >= 2 and all(isinstance(place, torch.device) for place in places)
    if torch.cuda.device_count() < 2:
        assert len(places) == data_parallel_ways.PLACES and len(set(places)) == 1


def test_transfers_copy_count_and_let_gradients_through():
    transfers = Transfers(["cpu", "cpu"])
    x = torch.ones(3, requires_grad=True)
    (there,) = transfers.send([x], 0, 1)
    (stays,) = transfers.send([x], 0, 0)
    assert there.data_ptr() != x.data_ptr() != stays.data_ptr()
    (there.sum() + 2 * stays.sum()).backward()
    assert x.grad.tolist() == [3, 3, 3]
    assert transfers.log == [(0, 1, 12), (0, 0, 12)] and transfers.crossing == [(0, 1, 12)]
    assert transfers.returned == [(1, 0, 12), (0, 0, 12)]


def test_ranks_compare_by_the_slowest_in_one_order_and_stop_after_the_same_round():
    def measure(rank, world_size):
        calls, now, looks = [], [0.0], itertools.count()

        def way(name, seconds):
            calls.append(name)
            now[0] += seconds

        clocks = SimpleNamespace(
            perf_counter=lambda: now[0],
            monotonic=lambda: next(looks) if rank == 0 else 1e9,  # only rank 0 may say that time is over
        )
        parallel_timing.time = clocks  # of this rank's own process
        ways = {
            "slow on rank 1": lambda: way("slow", (1.0, 2.0)[rank]),
            "slow on rank 0": lambda: way("fast", (0.5, 0.1)[rank]),
        }
        # the first look is the seed, the second the start: 3.5 more looks are the tenth round
        return distributed.compare_on_ranks(ways, half_width=-1.0, seconds=3.5), calls

    (found, calls), (same, same_calls) = run_ranks(measure, 2, backend="gloo")
    assert found.ratio("slow on rank 0") == Interval(4.0, 4.0, 4.0) == same.ratio("slow on rank 0")
    assert set(found.seconds["slow on rank 1"].tolist()) == {2.0}
    assert (found.stopped, found.rounds, same.rounds) == (TIME_OVER, 10, 10)
    assert calls == same_calls and len(calls) == 2 + 3 * 10
    rounds = [tuple(calls[i : i + 3]) for i in range(2, len(calls), 3)]
    assert len(set(rounds)) > 1, "the order changes"
    assert all(sorted(names) == ["fast", "slow", "slow"] for names in rounds), "the base is its own control"


def over_the_wire(rank, world_size):
    """What one rank finds out in a block of slow_wire."""
    with slow_wire() as wire:
        wire.latency = 0.002
        wire.bandwidth = 4e6
        tensors = [torch.full((1000 * (i + 1),), float(rank + 1)) for i in range(3)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        early = works[-1].is_completed()
        for work in works:
            work.wait()
        sums = [tensor.unique().tolist() for tensor in tensors]
        first, late = list(wire.messages), works[-1].is_completed()
        wire.messages.clear()
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Linear(3, 2))
        model(torch.full((1, 3), float(rank + 1))).sum().backward()
        gradient = model.module.weight.grad
    outside = torch.ones(1)
    dist.all_reduce(outside)
    return sums, early, late, first, gradient, len(wire.messages), outside.item()


def test_results_are_right_and_come_when_the_card_has_sent_them():
    for sums, early, late, messages, gradient, of_ddp, outside in run_ranks(over_the_wire, 2, backend="gloo"):
        assert sums == [[3.0]] * 3 and (early, late) == (False, True)
        assert [m.bytes for m in messages] == [4000, 8000, 12000]
        for message, before in zip(messages, [None, *messages[:-1]], strict=True):
            assert message.ended - message.started >= 0.002 + message.bytes / 4e6
            assert message.started >= message.launched and message.waited is not None
            assert before is None or message.started >= before.ended
        assert torch.equal(gradient, torch.full((2, 3), 1.5)) and of_ddp >= 1
        assert outside == 2.0, "outside of the block the group is the old one"


def test_calls_are_told_in_words():
    calls = [("broadcast", 1000), ("all_reduce", 4), ("broadcast", 208)]
    assert distributed.in_words(calls) == "2 broadcast 1,208 bytes, 1 all_reduce 4 bytes"
    assert distributed.in_words([]) == "nothing"


def test_bytes_are_listed_per_call_of_one_operation_or_of_all():
    calls = [("broadcast", 8), ("all_reduce", 4), ("broadcast", 1200)]
    assert distributed.bytes_of_each(calls, "broadcast") == [8, 1200]
    assert distributed.bytes_of_each(calls) == [8, 4, 1200]

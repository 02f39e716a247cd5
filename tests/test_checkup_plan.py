"""`course checkup --plan`: what a watched training would take on other devices."""

import pytest
from click.testing import CliRunner

from course.checkup import plan
from course.checkup.cluster import Cluster, parse
from course.checkup.command import checkup
from course.checkup.facts import Facts, Memory, Phase, Phases, Seconds
from course.errors import CourseError
from course.notebook.solutions import load_reference
from course.training.plans import Plan

WEIGHTS = 4_000_000
PHASES = Phases(data=Phase(0.5, seconds=0.5), forward=Phase(0.1, seconds=0.1), backward=Phase(0.2, seconds=0.2))
FACTS = Facts(seconds=Seconds(1.0), phases=PHASES, memory=Memory(WEIGHTS, WEIGHTS, 2 * WEIGHTS, 500_000), backwards=1.0)


def rows(cluster, facts=FACTS):
    return {row.plan: row for row in plan.rows(facts, parse(cluster))}


@pytest.mark.parametrize(
    "text, devices, memory, bandwidth",
    [("8xH100@450GB/s", 8, 80e9, 450e9), ("2xa100@1.5GB/s", 2, 80e9, 1.5e9), ("4x24GB@10GB/s", 4, 24e9, 10e9)],
)
def test_a_cluster_is_read(text, devices, memory, bandwidth):
    assert parse(text) == Cluster(devices, memory, bandwidth)


@pytest.mark.parametrize(
    "text, words",
    [("8xH100", "write it as 8xH100@450GB/s"), ("0xH100@1GB/s", "no cluster"), ("8xH100@0GB/s", "no cluster"),
     ("8xQ9@4GB/s", "the memory of Q9 is not known; say it, as in 8x24GB@4GB/s")],
)  # fmt: skip
def test_what_is_no_cluster_is_said_before_the_script_runs(text, words, tmp_path):
    with pytest.raises(CourseError, match=words):
        parse(text)
    script = tmp_path / "train.py"
    script.write_text("print('it ran')")
    done = CliRunner().invoke(checkup, ["--plan", text, str(script)])
    assert isinstance(done.exception, CourseError) and "it ran" not in done.output


FILE = "devices = 8\nmemory = 80\nbandwidth = 450\n"


def test_a_cluster_file_is_read(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(FILE)
    assert parse(str(path)) == parse("8xH100@450GB/s")
    path.write_text(FILE + "latency = 5\nspeed = 2.5\noverlap = false\n")
    assert parse(str(path)) == Cluster(8, 80e9, 450e9, latency=5e-6, speed=2.5, overlap=False)


@pytest.mark.parametrize(
    "text, words",
    [
        (None, "cannot read the cluster file .*: No such file"),
        ("devices =", "is not TOML"),
        (FILE + "nodes = 2", 'unknown key "nodes"; known are devices, memory'),
        ("devices = 8\nmemory = 80", "lacks bandwidth, GB/s that a device sends, such as 450"),
        (FILE.replace("8\n", "8.0\n", 1), "devices is 8.0; write a whole number of devices"),
        (FILE.replace("80\n", "'80GB'\n"), "memory is '80GB'; write GB of a device, such as 80"),
        (FILE.replace("450", "0"), "bandwidth is 0; write GB/s"),
        (FILE + "latency = -1", "latency is -1; write microseconds"),
        (FILE + "speed = true", "speed is True; write how many times as fast"),
        (FILE + "speed = nan", "speed is nan; write how many times as fast"),
        (FILE + "overlap = 1", "overlap is 1; write true or false"),
    ],
)
def test_a_wrong_cluster_file_is_refused_in_one_sentence(text, words, tmp_path):
    path = tmp_path / "cluster.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(CourseError, match=words) as raised:
        parse(str(path))
    assert str(raised.value).count("\n") == 0


def test_a_faster_device_computes_faster_and_sends_as_before():
    cluster = Cluster(2, 1e9, 1e7, speed=2.0)
    found = {row.plan: row for row in plan.rows(FACTS, cluster)}
    assert found["DDP"].seconds == pytest.approx(0.25 + 2 * 0.2 - 0.1)


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_bytes_are_those_of_the_closed_form(devices):
    """That of unit 07, part 1, in float32 with Adam."""
    state_bytes = load_reference("07_beyond_data_parallel", "state_bytes")
    found = rows(f"{devices}x1GB@1GB/s")
    for stage, name in enumerate(plan.PLANS):
        state = state_bytes(WEIGHTS // 4, Plan(data=devices, stage=stage), mixed=False)
        assert found[name].n_bytes == sum(state.values()) + 500_000


def test_seconds_are_those_of_a_step_without_data_and_of_messages_that_do_not_hide():
    fast = rows("2x1GB@1GB/s")
    assert {row.seconds for row in fast.values()} == {0.5}
    slow = rows("2x1GB@0.01GB/s")  # half an all-reduce takes 0.2 s; 0.2 s hide behind backward, 0.1 behind forward
    assert slow["DDP"].seconds == slow["ZeRO-1"].seconds == pytest.approx(0.5 + 2 * 0.2 - 0.2)
    assert slow["ZeRO-3"].seconds == pytest.approx(0.5 + 3 * 0.2 - 0.3)
    four = Facts(seconds=Seconds(1.0), phases=PHASES, memory=FACTS.memory, backwards=4.0)
    for stage in ("DDP", "ZeRO-1"):  # gradients add up, so only the last of four backward passes hides them
        assert rows("2x1GB@0.01GB/s", four)[stage].seconds == pytest.approx(0.5 + 2 * 0.2 - 0.2 / 4)
    assert rows("2x1GB@0.01GB/s", four)["ZeRO-2"].seconds == pytest.approx(0.5 + 5 * 0.2 - 0.2)


def test_the_best_that_fits_comes_first_and_what_does_not_fit_is_said():
    cluster = Cluster(8, 12_000_000, 1e9)  # room for the activations and three times the weights
    assert [row.plan for row in plan.rows(FACTS, cluster)] == ["ZeRO-3", "ZeRO-2", "ZeRO-1", "DDP"]
    lines = plan.text(FACTS, cluster).splitlines()
    assert "8 devices of 12 MB that send 1 GB/s" in lines[0]
    assert [line.endswith("does not fit") for line in lines[1:5]] == [False, False, False, True]
    assert "Not known" in lines[-2] and max(map(len, lines)) <= 100


def test_nothing_is_said_of_what_was_not_seen():
    cluster = parse("8xH100@450GB/s")
    assert "no step was timed" in plan.text(Facts(), cluster)
    assert "watch one rank" in plan.text(Facts(phases=PHASES, ranks=2), cluster)
    unseen = Facts(seconds=Seconds(1.0), phases=PHASES, memory=Memory(4, 4, 8))
    assert "Activations were not seen" in plan.text(unseen, cluster)

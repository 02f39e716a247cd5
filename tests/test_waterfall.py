"""The stall waterfall: its bars sum to the step, and its replays give what the loader gives."""

import itertools
import math
import random

import matplotlib.pyplot as plt
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import functional

from course.errors import CourseError
from course.measure import waterfall
from course.measure.comparison import NARROW, Comparison, Interval
from course.measure.waterfall import AS_IT_IS, COLLATE, DECODE, ITEMS, READ, STEP, TRANSFER, TRANSFORM
from course.plots import parallel_loading as plots


class Replay:
    """What the exercise Ceiling asks for."""

    def __init__(self, source, n, stage=None):
        kept = itertools.islice(source, n)
        self.kept = [batch if stage is None else stage(batch) for batch in kept]
        self.length = len(source)

    def __len__(self):
        return self.length

    def __iter__(self):
        return itertools.islice(itertools.cycle(self.kept), self.length)


class Faces(Dataset):
    """The pictures of `paths`, half as large if they are drafted."""

    def __init__(self, paths, drafted=False):
        self.paths, self.drafted = paths, drafted

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with Image.open(self.paths[i]) as file:
            if self.drafted:
                file.draft("RGB", (16, 16))
            picture = file.convert("RGB")
        return functional.pil_to_tensor(picture.resize((8, 8)))


@pytest.fixture
def paths(tmp_path):
    """Four JPEG files."""
    for k in range(4):
        pixels = torch.randint(256, (3, 32, 32), dtype=torch.uint8)
        functional.to_pil_image(pixels).save(tmp_path / f"{k}.jpg")
    return sorted(tmp_path.glob("*.jpg"))


def by_hand(*seconds):
    """A Waterfall of ten steps in seven equal rounds; seconds by way."""
    names = (AS_IT_IS, READ, DECODE, TRANSFORM, COLLATE)
    rounds = torch.linspace(0.9, 1.1, 7, dtype=torch.float64)
    table = {name: s * rounds for name, s in zip(names, seconds, strict=True)}
    return waterfall.Waterfall(Comparison(table, Interval(1.0, 0.98, 1.02), NARROW), steps=10)


def test_bars_sum_to_the_step_and_a_negative_one_is_told():
    found = by_hand(10.0, 9.0, 4.0, 4.5, 2.0)
    bars = {stage: bar.estimate for stage, bar in found.bars.items()}
    assert bars == pytest.approx({READ: 0.1, DECODE: 0.5, TRANSFORM: -0.05, COLLATE: 0.25, STEP: 0.2})
    assert sum(bars.values()) == pytest.approx(found.step)
    assert found.longest == [DECODE] and found.ceiling.estimate == pytest.approx(5.0)
    text = str(found)
    assert "got slower when this was replayed" in text and text.count("slower") == 1


@pytest.mark.parametrize("drafted", [False, True])
def test_every_replay_gives_the_batches_of_the_loader(paths, drafted):
    loader = DataLoader(Faces(paths, drafted), batch_size=2)
    found = waterfall.sources(loader, Replay, lambda batch: batch + 1, n_batches=3)
    assert list(found) == [AS_IT_IS, READ, DECODE, TRANSFORM, COLLATE, TRANSFER]
    expected = torch.stack([Faces(paths, drafted)[i % 4] for i in range(6)]).view(3, 2, 3, 8, 8)
    for path in paths:
        path.unlink()  # whoever reads a file now fails
    for name, source in found.items():
        if name != AS_IT_IS:
            assert torch.equal(torch.stack(list(source)), expected + (name == TRANSFER)), name
    with pytest.raises(FileNotFoundError):
        list(found[AS_IT_IS])


def test_a_decoded_picture_that_is_changed_in_place_stays_as_it_was(paths):
    pictures = waterfall.Pictures()
    changed = pictures.decode(paths[0])
    changed.putpixel((0, 0), (1, 2, 3))
    assert pictures.decode(paths[0]).getpixel((0, 0)) == Image.open(paths[0]).getpixel((0, 0)) != (1, 2, 3)


def test_workers_get_what_was_kept(paths):
    loader = DataLoader(Faces(paths), 2, num_workers=1, multiprocessing_context="fork")
    found = waterfall.sources(loader, Replay, None, n_batches=2)
    for path in paths:
        path.unlink()
    assert len(list(found[DECODE])) == 2 and found[DECODE].num_workers == 1 and TRANSFER not in found


def test_data_without_files_have_one_bar_for_their_items():
    loader = DataLoader(torch.arange(8), batch_size=2, shuffle=True)
    found = waterfall.measure(loader, lambda batch: None, Replay, steps=2, rounds=(2, 2), seconds=0)
    assert list(found.bars) == [ITEMS, COLLATE, STEP] and found.steps == 2
    with pytest.raises(CourseError, match="batch_size"):
        waterfall.sources(DataLoader(torch.arange(8), batch_size=None), Replay, None, 2)


def test_the_figure_draws_bars_one_after_the_other():
    figure = plots.waterfall({"before": by_hand(10.0, 9.0, 4.0, 4.5, 2.0), "after": by_hand(4, 3, 2, 1.5, 1)}, "")
    first, second = figure.axes
    ends = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in first.patches]
    assert [round(left) for left, _ in ends] == [900, 400, 450, 200, 0]
    assert [round(right) for _, right in ends] == [1000, 900, 400, 450, 200]
    assert first.get_xlim() == second.get_xlim()
    plt.close(figure)


def test_waiting_is_the_share_of_a_step_before_its_batch(monkeypatch):
    clock = [0.0]

    def batches():
        for number in range(8):
            clock[0] += 3.0
            yield number

    def step(batch):
        clock[0] += 1.0

    monkeypatch.setattr(waterfall, "now", lambda device: clock[0])
    assert waterfall.waiting(batches(), step).estimate == 0.75


class Clock:
    """A clock that only `spend` advances, by about what is asked: the noise has a seed."""

    def __init__(self, noise=0.0):
        self.time, self.noise, self.random = 0.0, noise, random.Random(1)

    def __call__(self, device):
        return self.time

    def spend(self, seconds):
        self.time += seconds * (1 + self.random.uniform(-self.noise, self.noise))


class Slow(Dataset):
    """Four numbers, each of which takes 2 ms."""

    def __init__(self, clock):
        self.clock = clock

    def __len__(self):
        return 4

    def __getitem__(self, i):
        self.clock.spend(0.002)
        return torch.tensor(i)


def slow_training(clock):
    """(loader, step, transfer): batches of 2 that take 2 x 2, 5, 1 and 3 ms by the clock."""

    def collate(items):
        clock.spend(0.005)
        return torch.stack(items)

    def transfer(batch):
        clock.spend(0.001)
        return batch

    return DataLoader(Slow(clock), 2, collate_fn=collate), lambda batch: clock.spend(0.003), transfer


def test_a_stage_of_known_length_has_a_bar_of_that_length(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(waterfall, "now", clock)
    loader, step, transfer = slow_training(clock)
    found = waterfall.measure(loader, step, Replay, transfer, steps=4, rounds=(7, 7))
    bars = {stage: 1000 * bar.estimate for stage, bar in found.bars.items()}
    assert bars == pytest.approx({ITEMS: 4, COLLATE: 5, TRANSFER: 1, STEP: 3})
    assert found.ceiling.estimate == pytest.approx(13 / 3) and found.null.estimate == pytest.approx(0)


@pytest.mark.parametrize("stage", [COLLATE, TRANSFER])
def test_a_stage_that_is_replaced_by_itself_has_no_bar(monkeypatch, stage):
    clock = Clock(noise=0.1)
    monkeypatch.setattr(waterfall, "now", clock)
    loader, step, _ = slow_training(clock)
    same = {AS_IT_IS: loader, stage: loader}
    monkeypatch.setattr(waterfall, "sources", lambda *arguments: same)
    found = waterfall.measure(loader, step, Replay, steps=2, rounds=(30, 30))
    for nothing in (found.bars[stage], found.null):
        assert abs(nothing.estimate) < 0.05 * found.step
        assert nothing.high - nothing.low < 0.1 * found.step  # known well enough to say so


def test_the_step_alone_is_timed_after_loading(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(waterfall, "now", clock)
    loader, _, _ = slow_training(clock)
    loaded = []
    monkeypatch.setattr(Slow, "__getitem__", lambda self, i: loaded.append(i) or torch.tensor(i))
    step = lambda batch: clock.spend(0.003 + 0.001 * len(loaded)) or loaded.clear()  # noqa: E731
    found = waterfall.step_after_loading(loader, step, Replay, steps=3, rounds=(7, 7))
    assert found.ratio(waterfall.KEPT, to=waterfall.AFTER_LOADING).estimate == pytest.approx(5 / 3)


def test_a_training_without_waiting_has_what_is_left_of_its_time():
    found = waterfall.without_waiting(Interval(0.75, 0.5, 0.9))
    assert (found.estimate, found.low, found.high) == pytest.approx((4.0, 2.0, 10.0))


def test_too_few_runs_leave_the_intervals_unknown():
    found = waterfall.without_waiting(Interval(0.75, -math.inf, math.inf))
    assert str(found) == "4.00 (no interval: fewer than 6 runs)"
    seconds = {AS_IT_IS: torch.tensor([2.0, 2.0], dtype=torch.float64)}
    compared = Comparison(seconds, Interval(1.5, 0.0, math.inf), NARROW)
    null = waterfall.Waterfall(compared, steps=2).null
    assert str(null) == "0.50 (no interval: fewer than 6 runs)"

"""Epochs that are recorded: which events they hold, and what is made of them."""

import math

import torch

from course.loading import recorded_epochs
from course.loading.loaders import Loader
from course.loading.reading_ahead import read_ahead
from course.loading.recorded_epochs import COMPUTE, READ, Epoch, Event
from course.measure.comparison import Interval


def loader_of(rows, batch, buffers):
    table = torch.arange(2.0 * rows).view(rows, 2)

    def fill(index, buffer):
        return torch.index_select(table, 0, index, out=buffer[: len(index)])

    held = [torch.empty(batch, 2) for _ in range(buffers)]
    return Loader(lambda epoch: torch.arange(rows), fill, read_ahead, held, 1, batch)


def test_each_fill_and_each_step_is_an_event(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0" * 100)
    for buffers in (1, 3):
        seen = []
        loader = loader_of(10, 4, buffers)
        epoch = recorded_epochs.recorded_epoch(loader, lambda x, seen=seen: seen.append(len(x)), path)
        assert seen == [4, 4, 2]
        assert len(epoch.durations(READ)) == len(epoch.durations(COMPUTE)) == 3
        assert all(0 <= event.start <= event.end <= epoch.seconds for event in epoch.events)


def test_epochs_that_warm_up_are_left_out():
    ran = []

    def run():
        ran.append(len(ran))
        return Epoch(1.0 + len(ran), [])

    compared, epochs = recorded_epochs.compare_epochs({"a": run, "b": run}, seconds=0.0)
    assert len(epochs["a"]) == 2 * compared.rounds and len(epochs["b"]) == compared.rounds


def test_the_typical_epoch_is_the_median():
    epochs = [Epoch(seconds, [Event(READ, 0, seconds)]) for seconds in (3.0, 1.0, 2.0)]
    assert recorded_epochs.typical(epochs).median(READ) == 2.0


def test_a_step_repeats_its_product_as_often_as_fits():
    once, nine_times = 3.0, 11.0  # so a further product takes 1
    assert [recorded_epochs.repeats_for(seconds, once, nine_times) for seconds in (1.0, 3.0, 7.0)] == [1, 1, 5]
    assert recorded_epochs.repeats_for(4.0, 3.0, 3.0) == 1 + 33  # a product that is lost in the noise takes a hundredth


def test_the_share_that_was_found_is_one_for_all_and_zero_for_nothing():
    found = recorded_epochs.Gain(1.0, Interval(math.sqrt(2), 1.0, 2.0), 2.0).share_found
    assert (found.low, found.high) == (0.0, 1.0) and math.isclose(found.estimate, 0.5)


def test_a_gain_is_predicted_from_the_epoch_with_one_buffer():
    alone = Epoch(10.0, [Event(READ, 0, 2), Event(COMPUTE, 2, 5), Event(READ, 5, 7), Event(COMPUTE, 7, 10)])

    def pipeline(fills, steps, buffers):
        assert (fills, steps) == ([2, 2], [3, 3])
        return {1: 10.0, 3: 8.0}[buffers]

    measured = Interval(1.2, 1.1, 1.3)
    found = recorded_epochs.gain_of(measured, alone, pipeline, buffers=3)
    assert found == recorded_epochs.Gain(1.5, measured, 1.25)

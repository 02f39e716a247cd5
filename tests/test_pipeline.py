"""Pipelines: pictures, bubble and bytes by their closed forms, gradients of the whole model and of torch."""

from fractions import Fraction

import pytest

from course.checks import beyond_data_parallel as check
from course.errors import CourseError
from course.parallel import pipeline
from course.parallel.distributed import run_ranks
from course.training import split_depth
from course.training.ragged_transformer import RaggedTransformer
from course.training.small_gpt import random_tokens

LASTS = {"F": 1, "B": 2}
ORDERS = {"ScheduleGPipe": pipeline.gpipe_order, "Schedule1F1B": check.one_f_one_b.reference()}


def orders(name, ranks, micro_batches):
    return [ORDERS[name](rank, ranks, micro_batches) for rank in range(ranks)]


def tiny_gpt(layers):
    return RaggedTransformer(256, 16, layers)


def test_the_references_have_the_closed_forms_at_every_size():
    most_live = check.most_live.reference()
    for ranks in range(1, 9):
        for micro_batches in (1, 2, 5, 8, 13):
            expected = Fraction(ranks - 1, micro_batches + ranks - 1)
            gpipe, once = (pipeline.timetable(orders(name, ranks, micro_batches)) for name in ORDERS)
            assert sorted(check.gpipe.reference()(ranks, micro_batches)) == sorted(gpipe)
            assert pipeline.bubble(gpipe) == pipeline.bubble(once) == expected
            assert most_live(gpipe) == [micro_batches] * ranks
            assert most_live(once) == [min(ranks - rank, micro_batches) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("name", ORDERS)
def test_virtual_ranks_compute_the_gradients_bubble_and_bytes_that_are_derived(name, ranks):
    model = tiny_gpt(8)
    tokens = random_tokens(6)
    run = split_depth.on_virtual_ranks(check.run_order.reference(), orders(name, ranks, 6), model, tokens, LASTS)
    whole = split_depth.whole_gradients(model, tokens)
    assert run.gradients.keys() == whole.keys()
    assert split_depth.largest_difference(run.gradients, whole) < 1e-6
    assert pipeline.bubble(run.passes, LASTS) == Fraction(ranks - 1, 6 + ranks - 1)
    live = check.most_live.reference()(run.passes)
    one = run.peak_bytes[-1] // live[-1]
    assert run.peak_bytes == [number * one for number in live]


def test_virtual_clocks_give_the_timetable():
    run = split_depth.on_virtual_ranks(
        check.run_order.reference(),
        orders("Schedule1F1B", 4, 6),
        tiny_gpt(4),
        random_tokens(6),
        pipeline.ONE_SLOT,
    )
    assert sorted(run.passes) == sorted(pipeline.timetable(orders("Schedule1F1B", 4, 6)))


def test_the_reference_and_torchs_pipelining_compute_the_gradients_of_the_whole_model():
    # seconds, most of which torch's pipelining takes to import
    model, tokens = tiny_gpt(4), random_tokens(4)
    theirs = {name: orders(name, 2, 4) for name in ORDERS}
    found = run_ranks(
        split_depth.compared_with_torch, 2, check.run_order.reference(), theirs, model, tokens, backend="gloo"
    )
    for of_rank in found:
        assert of_rank.keys() == ORDERS.keys()
        for distances in of_rank.values():
            assert distances.keys() == {"yours", "torch"}
            assert max(distances.values()) < 1e-6


def test_a_drawing_shows_passes_that_are_early_crowded_or_wait_forever():
    early = pipeline.drawing([(0, 0, "F", 0), (1, 0, "F", 0), (1, 1, "B", 0), (0, 1, "B", 0)])
    assert early == ("rank 0 |F0  B0!\nrank 1 |F0! B0\n! begins before what it needs is over")
    crowded = pipeline.drawing([(0, 0, "F", 0), (0, 0, "F", 1)])
    assert crowded == "rank 0 |++\n++ two passes in one slot"
    stuck = [[("F", 0), ("B", 0)], [("B", 0), ("F", 0)]]
    assert pipeline.order_drawing(stuck) == ("rank 0 |F0  B0? .\nrank 1 |.   B0? F0?\n? waits forever")
    with pytest.raises(CourseError, match="B0[?]"):
        pipeline.timetable(stuck)


def test_a_long_drawing_fits_into_a_message():
    lines = pipeline.drawing(check.gpipe.reference()(3, 20)).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].endswith(" ...")


def test_a_wrong_schedule_is_shown_as_a_picture_next_to_the_right_one():
    def together(ranks, micro_batches):
        schedule = check.gpipe.reference()(ranks, micro_batches)
        return [(rank, time - rank * (kind == "F"), kind, m) for rank, time, kind, m in schedule]

    report = check.gpipe.judge(together).report
    place = report.index("     yours")
    assert report[place + 1] == "     rank 0 |F0  F1  F2  .   .   B0  B1  B2"
    assert report[place + 2] == "     rank 1 |F0! F1! F2! .   B0  B1  B2  ."
    assert report[place + 4] == "     expected"
    hidden = check.gpipe.judge(together, seed=1811).report
    assert max(map(len, report + hidden)) <= 80

"""Where a step's time goes: phases, the dots of a roofline, and work that differs in one piece of advice."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course.measure import regimes, roofline, step_profile
from course.plots import faster_training as plots
from course.training import cheap_advice
from course.training.models import FashionCNN

pytestmark = pytest.mark.check
CPU = torch.device("cpu")


def by_name(step):
    return {operation.name: operation for operation in roofline.operations(step, CPU)}


def test_products_are_counted_by_their_formula_and_bytes_by_their_tensors():
    left, right = torch.ones(4, 8), torch.ones(8, 16)
    found = by_name(lambda: left @ right)
    mm = found["mm"]
    assert (mm.flops, mm.n_bytes, mm.calls) == (2 * 4 * 8 * 16, 4 * (4 * 8 + 8 * 16 + 4 * 16), 1)
    assert mm.seconds > 0 and mm.rate == mm.flops / mm.seconds and mm.intensity == mm.flops / mm.n_bytes


def test_other_operations_compute_one_per_number_and_views_nothing():
    x = torch.ones(10, 10)
    found = by_name(lambda: (x.t()[1:], torch.add(x, x)))
    assert list(found) == ["add"]
    assert (found["add"].flops, found["add"].n_bytes, found["add"].is_product) == (100, 1200, False)


def test_the_products_of_a_step_of_the_gpt_are_as_counted_by_hand():
    sizes = dict(vocabulary=32, dim=16, layers=1, heads=2, rows=2, columns=9)
    counted = roofline.product_flops(roofline.operations(cheap_advice.gpt_step(sizes, CPU), CPU))
    tokens, dim = 2 * 8, 16
    weights = dim * 3 * dim + dim * dim + 2 * 4 * dim * dim + dim * 32
    attention = 2 * 2 * tokens * 8 * dim  # two products with all 8 columns; five in backward
    assert counted == 3 * 2 * tokens * weights + attention * (1 + 5 / 2)


def test_a_roof_is_flat_from_the_ridge_on():
    roof = roofline.Roof(flops=100.0, n_bytes=20.0)
    assert roof.ridge == 5 and roof.at(1) == 20 and roof.at(5) == 100 and roof.at(50) == 100
    measured = roofline.roof(16, 1000, CPU)
    assert measured.flops > 0 and measured.n_bytes > 0


def test_the_roofline_says_which_time_is_left_of_the_ridge():
    operations = [
        roofline.Operation("mm", 1e9, 1e7, 0.03, 1, is_product=True),
        roofline.Operation("add", 1e6, 1e7, 0.01, 1),
    ]
    figure = plots.roofline(roofline.Roof(1e11, 1e10), {"a model": operations})
    assert figure.axes[0].get_title() == "a model: 25% of the time left of the ridge"
    assert [text.get_text() for text in figure.axes[0].texts] == ["mm", "add"]


def test_events_come_in_steps_and_phases_are_among_them():
    def train():
        for _ in range(3):
            with step_profile.phase("data", CPU):
                x = torch.ones(4, 4)
            with step_profile.phase("forward", CPU):
                x @ x

    found = step_profile.profiled(train, CPU)
    events = step_profile.events_of(found)
    steps = step_profile.per_step(events, "data")
    assert len(steps) == 3
    for events_of_step in steps:
        names = [name for name, _, _ in events_of_step]
        assert names[0] == "data" and names.count("forward") == 1 and "aten::mm" in names
    slowest = step_profile.slowest_operations(found, 2)
    assert len(slowest) == 2 and 0 < sum(slowest.values()) <= 1


def test_one_disturbed_step_does_not_change_typical_shares():
    lengths = (10.0, 10.0, 10.0, 500.0, 10.0, 10.0, 10.0)
    shares = [{"data": 5 / length} for length in lengths]
    assert step_profile.typical_shares(shares) == {"data": 0.5}


def test_the_load_of_the_processor_is_a_share_of_its_threads():
    assert 0 <= regimes.busy(lambda: None, seconds=0.01) <= 1.5


# ---- work that differs in one piece of advice


@pytest.fixture
def patient():
    torch.manual_seed(0)
    images = torch.randn(8, 1, 28, 28)
    return cheap_advice.Patient(FashionCNN(dropout=0.0), images, torch.arange(8), batch_size=4)


def test_all_batches_hold_the_same_images(patient):
    whole = patient.images.sum()
    sources = (patient.loader(), patient.slices(), patient.on_device(), patient.from_arrays(torch.tensor)())
    for source in sources:
        batches = [x for x, _ in source]
        assert [len(x) for x in batches] == [4, 4]
        torch.testing.assert_close(sum(x.sum() for x in batches), whole)


def test_gradients_are_cleared_in_both_ways_and_each_sees_the_losses(patient):
    losses = []
    patient.train(patient.on_device(), each=losses.append)()
    patient.train(patient.on_device(), to_none=False, each=losses.append)()
    assert len(losses) == 4
    x, y = patient.on_device()[-1]
    gradient = next(patient.model.parameters()).grad
    assert gradient is not None and torch.isfinite(gradient).all()
    # of the last batch alone, so that of the first was cleared
    patient.optimizer.zero_grad()
    F.cross_entropy(patient.model(x), y).backward()
    assert next(patient.model.parameters()).grad.norm() < 10 * gradient.norm()


def test_validation_without_gradients_keeps_no_bytes(patient):
    with_graph = cheap_advice.bytes_kept(patient.validate(contextlib.nullcontext))
    assert with_graph > patient.images.nbytes
    assert cheap_advice.bytes_kept(patient.validate(torch.no_grad)) == 0
    assert patient.model.training


def test_pairs_of_work_run_and_advice_changes_no_result():
    for work in (*cheap_advice.linear_steps(16, CPU), *cheap_advice.few_rows(8, CPU), *cheap_advice.made((2,), CPU)):
        work()


def test_contexts_last_as_long_as_the_work():
    seen = []
    cheap_advice.inside(cheap_advice.anomaly_detection, lambda: seen.append(torch.is_anomaly_enabled()))()
    cheap_advice.inside(cheap_advice.benchmarking, lambda: seen.append(torch.backends.cudnn.benchmark))()
    assert seen == [True, True]
    with pytest.raises(ZeroDivisionError):
        cheap_advice.inside(cheap_advice.benchmarking, lambda: 1 / 0)()
    assert not torch.is_anomaly_enabled() and not torch.backends.cudnn.benchmark


def test_the_first_step_of_a_shape_is_compared_with_the_next(patient):
    seen = []
    patient.step = lambda batch: seen.append(len(batch[0]))
    patient.batch_size = 8
    ratio = cheap_advice.first_step_of_a_shape(patient)
    assert seen == [7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1]
    assert 0 < ratio.low <= ratio.estimate <= ratio.high
    seen.clear()
    cheap_advice.first_step_of_a_shape(patient, missing=(6, 7), tunes=False)
    assert seen == [2, 2, 1, 1]


def test_images_one_by_one_are_normalised_as_all_of_them():
    pixels = torch.randint(0, 256, (3, 28, 28), dtype=torch.uint8)
    found = cheap_advice.OneByOne(pixels, torch.arange(3))
    assert len(found) == 3
    torch.testing.assert_close(found[1][0], cheap_advice.fashion.floats(pixels)[1])
    assert found[2][1] == 2


def test_what_needs_cuda_is_named_once(patient):
    assert isinstance(patient.model, nn.Module)
    assert list(cheap_advice.on_cuda(patient)) == [
        "pin_memory",
        "pin_memory and non_blocking",
        "device=",
        "cudnn.benchmark",
    ]

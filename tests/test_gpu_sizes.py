"""Sizes of experiments: data have room for them, a small GPU has memory and time for them; nothing is computed."""

import math
from types import SimpleNamespace

import pytest
import torch
import torchvision
from torch.nn import functional as F

from course.datasets import fashion, lfw, movielens, sequences
from course.device import SCALES
from course.experiment_sizes import UNITS, at_scale
from course.measure.roofline import products_of
from course.system import fit
from course.training import ladder
from course.training.contest import SCHEDULES
from course.training.models import NEUMF_SIZES, NeuMF
from course.training.race import COST_IMAGES
from course.training.ragged_transformer import RaggedTransformer
from course.training.recommender import BATCH_FACTORS, SAMPLES_PER_POSITIVE
from course.training.segments import Stack
from course.training.token_models import TokenAttention, TokenPool, attention_written_out

SMALL_GPU = 12e9  # bytes, as an RTX 3060 has them
SMALL_FLOPS = 9e12  # that it reaches in float32, per second
ROUND_SECONDS = 8  # a comparison takes seven rounds and a warm-up, so this is a minute
UPDATES_MAX = 50_000  # of short trainings in a cell: a minute of starting kernels


def sizes(unit, scale="gpu"):
    name = next(each for each in UNITS if each.startswith(unit))
    return SimpleNamespace(**at_scale(name, scale))


def lengths(name, standins, real):
    """How many rows a data set may have: those of the stand-in, and of the real one."""
    return [each[name] for each in (standins, real) if name in each]


# ---- data


def parallel_loading(s):
    images = {"tiny": 240, "lfw": 640}[s.dataset]
    assert images == lfw.STANDINS[s.dataset][1]
    starved = min(images, s.starved_images)
    assert starved - math.ceil(starved / 4) >= 2 * s.batch_size, "an epoch of the starved run has two batches"
    assert min(images, s.images) // s.batch_size - 1 >= 1, "a trace of part 5 has a step"


def data_parallel(s):
    for images, _ in lengths(s.dataset, fashion.STANDINS, fashion.SIZES):
        assert max(s.batches) <= images and s.batch_size <= images


def large_batch(s):
    n_users, _, ratings = movielens.STANDINS[s.dataset]
    samples = SAMPLES_PER_POSITIVE * (ratings - 2 * n_users)
    for times in (*BATCH_FACTORS, *s.critical_times, *s.map_times):
        assert 2 * times * s.base_batch <= samples, f"an epoch has two updates at {times} times the batch"


def fast_loading(s):
    assert max(s.one_by_one, s.rows_written, s.step_rows, 4 * s.batch_size) <= s.rows
    assert max(s.gathered) <= s.rows * 4 * (s.columns + 1)
    assert s.cold_rows <= s.rows and s.cold_rows >= 4 * s.batch_size, "what reads ahead has batches to read"
    assert s.sorted_rows >= 2 * s.sorted_batch * s.sorted_page_rows, "windows of B pages are held"


def batch_grouping(s):
    assert s.demo_rows <= sequences.ROWS["demo"] and s.demo_rows % 256 == 0
    assert s.row_length >= sequences.LENGTH_MAX, "the longest text has room in a row"
    assert s.training_rows // s.training_batch >= 4, "four ranks have a batch each"
    assert s.training_updates % 16 == 0, "the loss is measured where part 3 looks"


def faster_training(s):
    for images, _ in lengths(s.dataset, fashion.STANDINS, fashion.SIZES):
        held = round(images / 6)
        rest = images - held
        full = rest // s.cheap_batch
        assert max(s.profile_steps, s.cheap_steps, s.worker_steps) <= full, "part 1 has as many batches"
        assert ladder.BATCHES * max(s.step_batch, s.loss_batch) <= rest, "part 3 has as many batches"
        assert s.step_batch >= 16
        assert max(s.few_images, s.race_images) <= rest and s.accumulated_batch <= images
        assert min(s.eval_images, held) % 100 == 0, "the faulty evaluation wants whole batches of 100"
        assert s.few_images // 8 >= s.few_batch


def beyond_data_parallel(s):
    assert s.seed_pairs >= 1


@pytest.mark.check
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("unit", UNITS)
def test_data_have_as_many_rows_and_batches_as_experiments_take(unit, scale):
    globals()[unit.partition("_")[2]](sizes(unit, scale))


# ---- a step: its arithmetic, and the bytes that it keeps for backward


def work_of(step):
    """(FLOPs, bytes kept) of `step` on the meta device, which returns a scalar."""
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage  # kept alive, so that no other gets the number
        return tensor

    def run():
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = step()
        loss.backward()

    flops = products_of(run)
    return flops, sum(storage.nbytes() for storage in kept.values())


def pool(rows, columns, dim):
    model = TokenPool(8, dim, dim)
    x = torch.zeros(rows, columns, dtype=torch.int64)
    return lambda: model(x, x == 0).sum()


def attention(s):
    model = TokenAttention(8, s.attention_dim)
    x = torch.zeros(s.rows_of_cost, max(s.padded_lengths), dtype=torch.int64)
    return lambda: model(x, x == 0, attend=attention_written_out).sum()


def texts(s):
    model = RaggedTransformer(32, s.text_dim, s.text_layers)
    x = torch.zeros(s.training_batch, sequences.LENGTH_MAX, dtype=torch.int64)
    return lambda: model(x, torch.arange(x.shape[1])).sum()


def gpt_of_part_1(s):
    shape = dict(s.gpt)
    tokens = torch.zeros(shape.pop("rows"), shape.pop("columns") - 1, dtype=torch.int64)
    model = RaggedTransformer(**shape)
    return lambda: F.cross_entropy(model(tokens, torch.arange(tokens.shape[1])).flatten(0, 1), tokens.flatten())


def baseline_of_the_ladder(s):
    network = ladder.gpt(s.gpt_rows, s.gpt_columns, s.gpt_dim, s.gpt_layers, 1, torch.device("meta"))
    model = network.make()
    for block in model.blocks:
        block.attend = ladder.written_out
    inputs, targets = network.batches[0]
    return lambda: F.cross_entropy(model(*inputs).flatten(0, -2), targets.flatten())


def long_rows(s):
    shape = s.gpt_rows, ladder.HEADS, s.long_columns, s.gpt_dim // ladder.HEADS
    parts = [torch.zeros(shape, requires_grad=True) for _ in range(3)]
    return lambda: ladder.written_out(*parts, is_causal=True).sum()


def resnet(images):
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = torch.nn.Conv2d(1, 64, 3, padding=1, bias=False)
    return lambda: model(torch.zeros(images, 1, 28, 28)).sum()


def stack(s):
    with torch.device("cpu"):  # it reads a tensor of numbers
        model = Stack(s.blocks, s.block_width, 1)
    model = model.to("meta")
    return lambda: model(torch.zeros(s.block_rows, s.block_width))


def neumf(s, size, times):
    n_users, n_items, _ = movielens.STANDINS[s.dataset]
    model = NeuMF(n_users, n_items, **NEUMF_SIZES[size])
    users = torch.zeros(times * s.base_batch, dtype=torch.int64)
    return lambda: model(users, users).sum()


THREE, FIVE, SIX = (sizes(unit) for unit in ("03", "05", "06"))
# unit, step, how many in a round of its comparison
STEPS = {
    "NVIDIA's NeuMF, 192 times the batch": ("03", lambda: neumf(THREE, "nvidia", 192), 3 * THREE.amp_steps),
    "NeuMF, the largest batch": ("03", lambda: neumf(THREE, "paper", max(THREE.critical_times)), 3 * 3),
    "padded maxima": ("05", lambda: pool(FIVE.rows_of_cost, max(FIVE.padded_lengths), FIVE.emb_dim), 3),
    "attention written out": ("05", lambda: attention(FIVE), 3),
    "largest embedding": ("05", lambda: pool(256, 64, max(FIVE.emb_dims)), 2 * FIVE.demo_rows // 256),
    "one group": ("05", lambda: pool(FIVE.rows_of_overhead, 256, FIVE.overhead_dim), 4),
    "one rectangle": ("05", lambda: pool(FIVE.rows_of_groups, 256, FIVE.u_dim), 3),
    "padded texts": ("05", lambda: texts(FIVE), 4 * FIVE.text_rows // FIVE.training_batch),
    "GPT": ("06", lambda: gpt_of_part_1(SIX), 1),
    "ResNet": ("06", lambda: resnet(SIX.cheap_batch), 4 * SIX.worker_steps),
    "baseline of the ladder": ("06", lambda: baseline_of_the_ladder(SIX), 7 * SIX.steps_per_turn),
    "attention on long rows": ("06", lambda: long_rows(SIX), 3),
    "blocks": ("06", lambda: stack(SIX), 10),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_small_gpu_has_memory_and_time_for_a_step(name):
    unit, make, per_round = STEPS[name]
    with torch.device("meta"):
        flops, kept = work_of(make())
    needs = next(UNITS[each].NEEDS for each in UNITS if each.startswith(unit)).resources["gpu"]
    needed = needs.bytes(vars(sizes(unit)))
    assert kept <= needed, f"NEEDS names {needed / 1e9:.1f} GB, a step keeps {kept / 1e9:.1f}"
    seconds = per_round * flops / SMALL_FLOPS
    assert seconds <= ROUND_SECONDS, f"a round takes {seconds:.1f} s: make it smaller"


@pytest.mark.check
@pytest.mark.parametrize("unit", UNITS)
def test_a_small_gpu_has_what_a_unit_needs(unit):
    assert UNITS[unit].NEEDS.resources["gpu"].bytes(at_scale(unit, "gpu")) <= fit.KEPT_SHARE * SMALL_GPU


# ---- trainings


def updates_of_cells():
    """{cell: updates that it makes at gpu scale}."""
    n_users, _, ratings = movielens.STANDINS[THREE.dataset]
    epoch = SAMPLES_PER_POSITIVE * (ratings - 2 * n_users) / THREE.base_batch
    run = SIX.few_epochs * (SIX.few_images // SIX.few_batch)
    wider = sequences.LENGTH_MAX / 40  # windows have so many times fewer cells, and train until they had as many
    return {
        "03/1, the small batch": THREE.long_epochs * epoch,
        "03/2, all ways": 1.5 * THREE.long_epochs * epoch,
        "03/3, SGD and LARS at 16 times": 2 * 8 * THREE.epochs * epoch / 16,
        "03/5, the smallest batch to the target": THREE.price_seeds * THREE.target_epochs * epoch / 4,
        "05/3, three orders": 6 * FIVE.training_updates * FIVE.training_seeds * wider,
        "06/1, with and without normalisation": 14 * SIX.norm_seeds * SIX.norm_steps,
        "06/2, the contest": len(SCHEDULES) * len(SIX.few_peaks) * SIX.few_seeds * run,
        "06/2, AdamW": 2 * 6 * SIX.few_extra_seeds * SIX.few_decay_steps,
        "06/3, losses": (7 + 6) * SIX.loss_seeds * SIX.loss_steps,
        "06/4, the race": 3 * SIX.race_seeds * SIX.race_epochs * SIX.race_images / 64,
    }


@pytest.mark.check
def test_trainings_of_a_cell_make_few_updates():
    too_many = {cell: round(n) for cell, n in updates_of_cells().items() if n > UPDATES_MAX}
    assert not too_many
    assert COST_IMAGES <= SIX.race_cost_images

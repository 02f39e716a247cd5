"""The measurements of `course bench gpu`, each in its own process.

    python -m instructor.bench.gpu_measures NAME FILE

Rows of the table are written to FILE as soon as they are known, so that a measurement that runs
into its limit is not lost. Sizes follow COURSE_SCALE: at `gpu` those of the parts, or of the
sources (NCF, the 40 GB regression); seconds on a CPU at `smoke`. A row holds "median (lowest to
highest)" of synchronised runs, or a ratio with its interval; the first run does not count.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import course
from course.datasets import fashion, regression
from course.device import cores, device, scale
from course.errors import CourseError
from course.experiment_sizes import sizes
from course.learner.claims import Claim
from course.loading.copies import DeviceCopies
from course.loading.record_files import RecordFile
from course.measure.comparison import Comparison, compare, signed_rank_interval
from course.measure.timing import now
from course.notebook.registry import all_parts, units
from course.notebook.solutions import load_solutions
from course.system.files import write_text
from course.training import speedrun as race_of_unit_06
from course.training.models import NEUMF_SIZES, NeuMF
from course.training.recommender import SAMPLES_PER_POSITIVE
from course.training.recommender_loop import Interactions, epoch_batches
from instructor.bench import SECONDS_MAX, spread
from instructor.bench.cells import run_part
from instructor.bench.gpu import CLAIMS, PREDICTIONS

FAILURE_CHARACTERS = 300  # of an exception's message in the table
# of the step `smoke` on the pretended device, where 05/4 fails (docs/pretended-gpu.md)
SMOKE_UNIT = "05_batch_grouping"
SMOKE_SECONDS_MAX = 280  # of one part; processes start slowly on some lent machines
MEMORY_SHARE_MAX = 0.9  # of the free GPU memory that a data set may take
FFCV_SHAPE = 1_000_000, 10_000  # rows and columns of the regression in FFCV's guide, 40 GB


class Rows(list):
    """Rows (what, value) of a measurement; each is in the file as soon as it is known."""

    def __init__(self, path: Path | str) -> None:
        super().__init__()
        self.path = Path(path)

    def put(self, what: str, value: object) -> None:
        """Write the row, in the place of an earlier one that says the same `what`."""
        self[:] = [row for row in self if row[0] != what] + [(what, str(value))]
        write_text(self.path, json.dumps(self))


def at(smoke: Any, gpu: Any) -> Any:
    """`smoke` at that scale, else `gpu`."""
    return smoke if scale() == "smoke" else gpu


def seconds_of(call: Callable[[], object], rounds: int) -> Tensor:
    """float64 (rounds,): seconds that call() takes, after one call that does not count."""
    seconds = []
    for _ in range(rounds + 1):
        began = now(device())
        call()
        seconds.append(now(device()) - began)
    return torch.tensor(seconds[1:], dtype=torch.float64)


def compare_in_rounds(ways: dict[str, Callable[[], object]], rounds: int) -> Comparison:
    """The Comparison of `ways` on the device, in so many rounds."""
    limits = dict(fewest_rounds=rounds, most_rounds=rounds, seconds=SECONDS_MAX)
    return compare(ways, device=device(), progress=False, **limits)


# ---- NCF


class Precision(NamedTuple):
    """How products of matrices are computed."""

    of_float32: str  # as torch.set_float32_matmul_precision takes it
    autocast_to: torch.dtype | None


PRECISIONS = {
    "fp32": Precision("highest", None),
    "TF32": Precision("high", None),
    "AMP, bfloat16": Precision("high", torch.bfloat16),
    "AMP, float16": Precision("high", torch.float16),
}


def drawn_interactions(n_users: int, n_items: int, n_positives: int) -> Interactions:
    """Interactions on the device: as many rows as a data set, users and items drawn uniformly."""
    rng = torch.Generator().manual_seed(0)
    users = torch.randint(n_users, (n_positives,), generator=rng)
    items = torch.randint(n_items, (n_positives,), generator=rng)
    everyone = torch.arange(n_users) % n_items
    return Interactions.from_split(
        users, items, everyone, everyone[:, None], n_users, n_items, device()
    )


def ncf(rows: Rows) -> None:
    """Samples per second of training NeuMF in NVIDIA's sizes on as many rows as ML-20M has."""
    n_users, n_items, n_positives = at((200, 300, 2000), (138_493, 26_744, 19_861_770))
    batch = at(2**10, 2**20)
    data = drawn_interactions(n_users, n_items, n_positives)
    rows.put("data", f"{n_positives:,} drawn positives, 4 negatives each, batch {batch:,}")
    epochs = {}
    for name, precision in PRECISIONS.items():
        epochs[name] = ncf_epoch(data, batch, precision)
    found = compare_in_rounds(epochs, at(1, 7))
    samples = SAMPLES_PER_POSITIVE * len(data.train_users)
    for name in found.seconds:
        rate = found.rate(name, samples / 1e6).estimate
        ratio = f"{rate:.2f}, {found.ratio(name)} times as fast as {found.base}"
        rows.put(f"NCF, {name}, million samples/s", ratio)


def ncf_epoch(data: Interactions, batch: int, precision: Precision) -> Callable[[], None]:
    """A function that trains an epoch, its making included."""
    dtype = precision.autocast_to
    torch.manual_seed(0)
    model = NeuMF(data.n_users, data.n_items, **NEUMF_SIZES["nvidia"]).to(device()).train()
    optimizer = torch.optim.Adam(model.parameters(), 0.0045, betas=(0.25, 0.5), fused=True)
    scaler = torch.amp.GradScaler(device().type, enabled=dtype == torch.float16)
    negatives = load_solutions("03_large_batch").sample_negatives
    generator = torch.Generator(device()).manual_seed(0)

    def epoch() -> None:
        torch.set_float32_matmul_precision(precision.of_float32)
        for users, items, labels in epoch_batches(data, batch, negatives, 4, generator):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device().type, dtype or torch.bfloat16, enabled=dtype is not None):
                logits = model(users, items)
            scaler.scale(F.binary_cross_entropy_with_logits(logits.float(), labels)).backward()
            scaler.step(optimizer)
            scaler.update()

    return epoch


# ---- regression


def linear(rows: Rows) -> None:
    """Seconds of an epoch of SGD on 40 GB: from the record file over the bus, and on the GPU."""
    size = sizes("04_fast_loading")
    answers = load_solutions("04_fast_loading")
    data = regression.prepare(*at((size.rows, size.columns), FFCV_SHAPE))
    nbytes = 4 * data.rows * data.columns
    shape = f"{data.rows:,} x {data.columns:,}, {nbytes / 1e9:.1f} GB"
    rows.put("data", f"{shape}, batch {size.batch_size:,}")
    file = RecordFile(answers, data, size.batch_size, size.page, size.window)
    ring = file.loader(buffers=3)
    copies = DeviceCopies(device())

    def from_file() -> Iterable[tuple[Tensor, Tensor]]:
        return answers.copy_ahead(iter(ring), copies)

    mean, std = answers.mean_and_std(from_file())
    train = partial(_sgd_epoch, answers, data.columns, size.batch_size, mean, std)
    seconds = seconds_of(lambda: train(from_file()), at(1, 3))
    rows.put("regression, an epoch from the page cache over the bus, s", spread(seconds, ".3f"))
    rows.put("regression, the same, GB/s", spread(nbytes / 1e9 / seconds, ".1f"))
    free, _ = torch.cuda.mem_get_info()
    if nbytes > MEMORY_SHARE_MAX * free:
        reason = f"left out: {free / 1e9:.0f} GB are free there"
        rows.put("regression, an epoch from GPU memory", reason)
        return
    x, y = _on_device(data, from_file())
    batches = list(zip(x.split(size.batch_size), y.split(size.batch_size), strict=True))
    seconds = seconds_of(lambda: train(batches), at(1, 5))
    rows.put("regression, an epoch from GPU memory, s", spread(seconds, ".3f"))


def _on_device(
    data: regression.Regression, batches: Iterable[tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """All rows and labels of `batches` in one tensor each."""
    x = torch.empty(data.rows, data.columns, device=device())
    y = torch.empty(data.rows, device=device())
    first = 0
    for batch_x, batch_y in batches:
        end = first + len(batch_y)
        x[first:end] = batch_x
        y[first:end] = batch_y
        first = end
    return x, y


def _sgd_epoch(
    answers: SimpleNamespace,
    columns: int,
    batch: int,
    mean: Tensor,
    std: Tensor,
    batches: Iterable[tuple[Tensor, Tensor]],
) -> float:
    """Train an epoch from zero weights; returns the sum of squared residuals."""
    w = torch.zeros(columns, device=device())
    b = torch.zeros(1, device=device())
    total = torch.zeros(1, device=device())
    scratch = {"residual": torch.empty(batch, device=device())}
    scratch |= {name: torch.empty(columns, device=device()) for name in ("scaled", "gradient")}
    for xy in batches:
        total += answers.sgd_step_([xy], w, b, mean, std, 0.05, scratch).reshape(1)
    return total.item()


# ---- grouping, copies, race, check-up, grading


def grouping(rows: Rows) -> None:
    """What grouping by length is worth at an embedding of 8,192."""
    from instructor.bench import grouping

    measured = grouping.epochs(at(32, 8192), at(1, 5), None)
    print(grouping.epochs_table(measured))
    for way in measured.compared.seconds:
        rows.put(f"grouping: {way}", measured.numbers(way))


def copies(rows: Rows) -> None:
    """How much of the bus copies get while the device computes, and how much of them is hidden."""
    rounds = at(1, 15)
    nbytes = at(2**16, 2**28)
    n = at(64, 8192)
    host = [torch.empty(nbytes // 4, pin_memory=True).normal_() for _ in range(4)]
    a = torch.randn(n, n, device=device())
    copier = DeviceCopies(device())

    def copy() -> list:
        return [copier.start([tensor]) for tensor in host]

    def compute(times: int) -> None:
        for _ in range(times):
            a @ a

    alone = seconds_of(copy, 1).item()
    one = seconds_of(lambda: compute(4), 1).item() / 4
    times = max(1, round(alone / one))  # so that both take about as long

    def both() -> None:
        running = copy()
        compute(times)
        for each in running:
            each.tensors()

    ways = {"copies": copy, "compute": lambda: compute(times), "both": both}
    found = compare_in_rounds(ways, rounds)
    rate = len(host) * nbytes / 1e9 / found.median("copies")
    rows.put("copies alone, GB/s", f"{rate:.1f}")
    share = found.ratio("both", to="copies").scaled(100)
    rows.put("copies while the device computes, share of the bus in %", share)
    copying, computing, together = found.seconds.values()
    hidden = 100 * (copying + computing - together) / torch.minimum(copying, computing)
    interval = signed_rank_interval(hidden.tolist())
    rows.put("of the shorter of copying and computing, hidden, %", interval)


def race(rows: Rows) -> None:
    """The race of unit 06, each piece of advice left out once."""
    from instructor.bench import speedrun

    seeds = at(1, 6)
    data = fashion.load(at("tiny", "fashion"))
    looks = at(128, speedrun.LOOK_EVERY)
    track = race_of_unit_06.track(data, at(0.3, 0.9), at(600, None), looks)
    entries = at(rows.path.with_name("races.jsonl"), None)
    runs = []
    for run in speedrun.races(track, seeds, entries):
        speedrun.print_run(run)
        runs.append(run)
        latest = f"{run.name} {run.seconds:.1f} s {run.images:,.0f} images"
        rows.put(f"race: seed {run.seed}", latest)
    results = speedrun.results(runs)
    print(speedrun.results_table(results, seeds))
    rows.put(f"race: {speedrun.table_head(seeds)}", "; ".join(speedrun.COLUMNS))
    for result in results:
        rows.put(f"race: {result.name}", "; ".join(result.cells()))


def checkup(rows: Rows) -> None:
    """The check-up of a small training: phases by events of the GPU, its cost, and its advice."""
    where = device()
    features, batch_size = at((16, 8), (1024, 256))
    model = torch.nn.Sequential(
        torch.nn.Linear(features, features), torch.nn.ReLU(), torch.nn.Linear(features, 10)
    )
    optimizer = torch.optim.Adam(model.to(where).parameters())
    n = 16 * batch_size
    data = TensorDataset(torch.randn(n, features), torch.randint(10, (n,)))

    def step(batch: list[Tensor]) -> None:
        x, y = (part.to(where) for part in batch)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    report = course.checkup(
        DataLoader(data, batch_size), step, steps=at(8, 100), minutes=at(0.05, 3.0)
    ).data
    for name, row in report["phases"].items():
        rows.put(f"check-up: {name}, % of a step", f"{100 * row['share']:.1f}")
    cost = "" if report["own_cost"] is None else f"{100 * report['own_cost']:.1f}"
    rows.put("check-up: cost of watching, %", cost)
    texts = [line["text"] for line in report["advice"]]
    rows.put("check-up: advice", "; ".join(texts) or "none")


def grading(rows: Rows) -> None:
    """A solved submission of every unit, graded with --cuda: all points, and how long it takes.

    The units are graded at the same time.
    """
    try:
        from instructor.bench.grading import solved_once
    except ImportError as error:
        reason = f"grading needs nbgrader and jupytext on this machine ({error})."
        raise CourseError(reason) from None
    graded_units = at(("06_faster_training",), units())
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(graded_units)) as pool:
        running = {}
        for unit in graded_units:
            running[pool.submit(solved_once, unit, Path(folder, unit), cuda=True)] = unit
        for future in as_completed(running):
            graded = future.result()
            points = f"{graded.score:g} of {graded.points:g} points in {graded.seconds:.0f} s"
            rows.put(f"a solved submission of {running[future]}", points)


# ---- parts


def smoke(rows: Rows) -> None:
    """Every part at `smoke` scale: a row each, "done" or its first error; one at a time per core.

    On the pretended device only those of SMOKE_UNIT run.

    Raises: CourseError if a part failed.
    """
    places = []
    for unit, name in all_parts():
        if "PRETEND_CUDA" not in os.environ or unit == SMOKE_UNIT:
            places.append(f"{unit}/{name}")
    failed = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(cores()) as pool:
        running = {}
        for place in places:
            file = Path(folder, f"{place.replace('/', '-')}.json")
            running[pool.submit(_smoke_part, place, file)] = place
        for future in as_completed(running):
            error = future.result()
            rows.put(running[future], error or "done")
            if error:
                failed.append(running[future])
    if failed:
        raise CourseError(f"{len(failed)} of {len(places)} parts: {', '.join(sorted(failed))}")


def _smoke_part(place: str, file: Path) -> str:
    """Run a part in a new process; return its first error, "" if there is none."""
    call = [sys.executable, "-W", "ignore", "-m", "instructor.bench.gpu_measures", place, str(file)]
    # one thread each, because as many parts run as there are cores
    environment = os.environ | {"COURSE_SCALE": "smoke", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            call, env=environment, capture_output=True, text=True, timeout=SMOKE_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        return f"took more than {SMOKE_SECONDS_MAX} s"
    found = dict(json.loads(file.read_text())) if file.exists() else {}
    if done.returncode == 0:
        return ""
    return found.get("failed") or " ".join(done.stderr.split())[-FAILURE_CHARACTERS:] or "ended"


def part(unit: str, name: str, rows: Rows) -> None:
    """One part of the course with its claims."""
    began = time.perf_counter()

    def done(number: int, total: int, claims: list[Claim]) -> None:
        failed = []
        for claim in claims:
            if claim.held is not True:
                failed.append(f"{claim.sentence} ({claim.value})")
        rows.put("cells that ran", f"{number} of {total}")
        rows.put("claims that held", f"{len(claims) - len(failed)} of {len(claims)}")
        rows.put("seconds", f"{time.perf_counter() - began:.0f}")
        if failed:
            rows.put("did not hold", "; ".join(failed))
        write_text(rows.path.with_name(CLAIMS), json.dumps([asdict(claim) for claim in claims]))
        write_text(rows.path.with_name(PREDICTIONS), json.dumps(predictions))

    predictions = []
    run_part(unit, name, done, predictions)


MEASURES = {
    measure.__name__: measure
    for measure in (grading, smoke, linear, race, ncf, grouping, copies, checkup)
}


def main(name: str, path: str) -> None:
    """Run the measurement `name`, or the part "unit/part", and write its rows to a file."""
    rows = Rows(path)
    unit, _, of = name.partition("/")
    try:
        if of:
            part(unit, of, rows)
        else:
            MEASURES[name](rows)
    except Exception as error:
        message = " ".join([str(error), *getattr(error, "__notes__", [])])
        message = " ".join(message.split())[:FAILURE_CHARACTERS]
        rows.put("failed", f"{type(error).__name__}: {message}")
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])

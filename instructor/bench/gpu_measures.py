"""The measurements of `course bench gpu`, each in a process of its own.

    python -m instructor.bench.gpu_measures NAME FILE

Rows of the table are written to FILE as soon as they are known, so that a measurement that runs
into its limit is not lost. Sizes follow COURSE_SCALE: those of the sources at `gpu`, seconds on a
CPU at `smoke`. A row holds "median (lowest to highest)" of runs in turn, synchronised, after one
that does not count.
"""

import contextlib
import io
import itertools
import json
import sys
import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import course
from course.datasets import regression
from course.device import device, scale
from course.errors import CourseError
from course.experiment_sizes import sizes
from course.loading.copies import DeviceCopies
from course.loading.record_files import RecordFile
from course.measure.timing import now
from course.notebook.solutions import load_solutions
from course.system.files import write_text
from course.training.models import NEUMF_SIZES, NeuMF
from course.training.recommender_loop import Interactions, epoch_batches
from instructor.bench import spread
from instructor.bench.cells import run_part
from instructor.bench.gpu import CLAIMS


class Rows(list):
    """Rows (what, value) of a measurement; each is in the file as soon as it is known."""

    def __init__(self, path):
        super().__init__()
        self.path = Path(path)

    def put(self, what: str, value: object) -> None:
        """Write the row, in the place of an earlier one that says the same `what`."""
        self[:] = [row for row in self if row[0] != what] + [(what, str(value))]
        write_text(self.path, json.dumps(self))


def at(smoke: object, gpu: object) -> object:
    """`smoke` at that scale, else `gpu`."""
    return smoke if scale() == "smoke" else gpu


def seconds_of(call, rounds):
    """float64 tensor (rounds,) of the seconds that call() takes, after one call that does not
    count.
    """
    seconds = []
    for _ in range(rounds + 1):
        began = now(device())
        call()
        seconds.append(now(device()) - began)
    return torch.tensor(seconds[1:], dtype=torch.float64)


# ---- NCF


def drawn_interactions(n_users: int, n_items: int, n_positives: int) -> Interactions:
    """Interactions on the device with as many rows as a data set, which users and items being
    uniformly drawn.
    """
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
    ways = {
        "fp32": ("highest", None),
        "TF32": ("high", None),
        "AMP, bfloat16": ("high", torch.bfloat16),
        "AMP, float16": ("high", torch.float16),
    }
    for name, (precision, dtype) in ways.items():
        torch.set_float32_matmul_precision(precision)
        rates = ncf_rates(data, batch, dtype, repeats=at(1, 5))
        rows.put(f"NCF, {name}, million samples/s", spread(rates / 1e6, ".2f"))


def ncf_rates(
    data: Interactions, batch: int, dtype: torch.dtype | None, repeats: int
) -> torch.Tensor:
    """float64 (repeats,): samples per second of whole epochs, the making of each epoch included."""
    torch.manual_seed(0)
    model = NeuMF(data.n_users, data.n_items, **NEUMF_SIZES["nvidia"]).to(device()).train()
    optimizer = torch.optim.Adam(model.parameters(), 0.0045, betas=(0.25, 0.5), fused=True)
    scaler = torch.amp.GradScaler(device().type, enabled=dtype == torch.float16)
    negatives, generator = (
        load_solutions("03_large_batch").sample_negatives,
        torch.Generator(device()).manual_seed(0),
    )

    def epoch():
        for users, items, labels in epoch_batches(data, batch, negatives, 4, generator):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device().type, dtype or torch.bfloat16, enabled=dtype is not None):
                logits = model(users, items)
            scaler.scale(F.binary_cross_entropy_with_logits(logits.float(), labels)).backward()
            scaler.step(optimizer)
            scaler.update()

    return 5 * len(data.train_users) / seconds_of(epoch, repeats)


# ---- regression


def linear(rows: Rows) -> None:
    """Seconds of an epoch of SGD on a regression of 40 GB: from its record file over the bus, and
    from GPU memory.
    """
    size, answers = sizes("04_fast_loading"), load_solutions("04_fast_loading")
    data = regression.prepare(size.rows, size.columns)
    nbytes = 4 * data.rows * data.columns
    rows.put(
        "data",
        f"{data.rows:,} x {data.columns:,}, {nbytes / 1e9:.1f} GB, batch {size.batch_size:,}",
    )
    file = RecordFile(answers, data, size.batch_size, size.page, size.window)
    ring, copies = file.loader(buffers=3), DeviceCopies(device())
    mean, std = answers.mean_and_std(answers.copy_ahead(iter(ring), copies))
    step = partial(_sgd_epoch, answers, data.columns, size.batch_size, mean, std)

    def from_file():
        step(answers.copy_ahead(iter(ring), copies))

    seconds = seconds_of(from_file, at(1, 3))
    rows.put("regression, an epoch from the page cache over the bus, s", spread(seconds, ".3f"))
    rows.put("regression, the same, GB/s", spread(nbytes / 1e9 / seconds, ".1f"))
    free, _ = torch.cuda.mem_get_info()
    if nbytes > 0.9 * free:
        rows.put(
            "regression, an epoch from GPU memory", f"left out: {free / 1e9:.0f} GB are free there"
        )
        return
    x, y = (
        torch.empty(data.rows, data.columns, device=device()),
        torch.empty(data.rows, device=device()),
    )
    first = 0
    for bx, by in answers.copy_ahead(iter(ring), copies):
        x[first : first + len(by)], y[first : first + len(by)] = bx, by
        first += len(by)
    batches = list(zip(x.split(size.batch_size), y.split(size.batch_size), strict=True))
    seconds = seconds_of(lambda: step(batches), at(1, 5))
    rows.put("regression, an epoch from GPU memory, s", spread(seconds, ".3f"))


def _sgd_epoch(answers, columns, batch, mean, std, batches):
    """Train an epoch from zero weights; returns the sum of squared residuals."""
    w, b, total = (torch.zeros(n, device=device()) for n in (columns, 1, 1))
    scratch = {"residual": torch.empty(batch, device=device())}
    scratch |= {name: torch.empty(columns, device=device()) for name in ("scaled", "gradient")}
    for xy in batches:
        total += answers.sgd_step_([xy], w, b, mean, std, 0.05, scratch).reshape(1)
    return total.item()


# ---- grouping, copies, race, grading


def grouping(rows: Rows) -> None:
    """What grouping by length is worth at an embedding of 8,192."""
    from instructor.bench import grouping

    with _lines(rows, "grouping"):
        grouping.epochs(at(32, 8192), at(1, 5), None)


def copies(rows: Rows) -> None:
    """How much of the bus copies get while the device computes, and how much of them is hidden."""
    rounds, nbytes, n = at(1, 7), at(2**16, 2**28), at(64, 8192)
    host = [torch.empty(nbytes // 4, pin_memory=True).normal_() for _ in range(4)]
    a, started = torch.randn(n, n, device=device()), DeviceCopies(device())

    def copy():
        return [started.start([tensor]) for tensor in host]

    def compute(times):
        for _ in range(times):
            a @ a

    alone = seconds_of(copy, rounds)
    one = seconds_of(lambda: compute(4), rounds).median().item() / 4
    times = max(1, round(alone.median().item() / one))  # so that both take about as long
    computing = seconds_of(lambda: compute(times), rounds)

    def both():
        running = copy()
        compute(times)
        for each in running:
            each.tensors()

    together = seconds_of(both, rounds)
    rows.put("copies alone, GB/s", spread(len(host) * nbytes / 1e9 / alone, ".1f"))
    rows.put(
        "copies while the device computes, share of the bus in %",
        spread(100 * alone / together, ".0f"),
    )
    hidden = (alone + computing - together) / torch.minimum(alone, computing)
    rows.put("of the shorter of copying and computing, hidden, %", spread(100 * hidden, ".0f"))


def race(rows: Rows) -> None:
    """The race of unit 06, each piece of advice left out once."""
    from instructor.bench import speedrun

    entries = at(rows.path.with_name("races.jsonl"), None)
    with _lines(rows, "race"):
        speedrun.run(at(1, 3), at(0.3, 0.9), at(600, None), entries, at("tiny", "fashion"))


def checkup(rows: Rows) -> None:
    """The check-up of a small training: its phases by events of the GPU, its cost, and what it
    advises.
    """
    where, sizes = device(), at((16, 8), (1024, 256))
    model = torch.nn.Sequential(
        torch.nn.Linear(sizes[0], sizes[0]), torch.nn.ReLU(), torch.nn.Linear(sizes[0], 10)
    )
    optimizer = torch.optim.Adam(model.to(where).parameters())
    data = TensorDataset(torch.randn(16 * sizes[1], sizes[0]), torch.randint(10, (16 * sizes[1],)))

    def step(batch):
        x, y = (part.to(where) for part in batch)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    report = course.checkup(DataLoader(data, sizes[1]), step, steps=at(8, 100)).data
    for name, row in report["phases"].items():
        rows.put(f"check-up: {name}, % of a step", f"{100 * row['share']:.1f}")
    rows.put(
        "check-up: cost of watching, %",
        f"{100 * report['own_cost']:.1f}" if report["own_cost"] is not None else "",
    )
    rows.put("check-up: advice", "; ".join(line["text"] for line in report["advice"]) or "none")


def grading(rows: Rows) -> None:
    """A solved submission of unit 05, graded with --cuda: all points, and how long it takes."""
    try:
        from instructor.bench.grading import solved_once
    except ImportError as error:
        raise CourseError(
            f"grading needs nbgrader and jupytext on this machine ({error})."
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        seconds, scored, points = solved_once(
            at("06_faster_training", "05_batch_grouping"), Path(folder), cuda=True
        )
    rows.put("grading a solved submission, points", f"{scored:g} of {points:g}")
    rows.put("grading a solved submission, s", f"{seconds:.1f}")


@contextlib.contextmanager
def _lines(rows, name):
    """Inside the block, every line of a table that is printed is a row as well."""

    class Both(io.TextIOBase):
        text, real = "", sys.stdout

        def write(self, words):
            self.real.write(words)
            *lines, self.text = (self.text + words).split("\n")
            for line in lines:
                if line.startswith("| ") and "|---" not in line:
                    what, _, value = line.strip("| ").partition(" | ")
                    rows.put(f"{name}: {what}", value.replace(" | ", "; "))
                elif line.startswith("  ") and "%|" not in line:
                    what, _, value = line.strip().partition("  ")
                    rows.put(f"{name}: {what}", " ".join(value.split()))
            return len(words)

        def flush(self):
            self.real.flush()

    with contextlib.redirect_stdout(Both()):
        yield


# ---- parts


def part(unit: str, name: str, rows: Rows) -> None:
    """One part of the course with its claims."""
    began = time.perf_counter()

    def done(number, total, claims):
        held = sum(claim.held is True for claim in claims)
        rows.put("cells that ran", f"{number} of {total}")
        rows.put("claims that held", f"{held} of {len(claims)}")
        rows.put("seconds", f"{time.perf_counter() - began:.0f}")
        failed = [f"{claim.sentence} ({claim.value})" for claim in claims if claim.held is not True]
        if failed:
            rows.put("did not hold", "; ".join(failed))
        write_text(rows.path.with_name(CLAIMS), json.dumps([asdict(claim) for claim in claims]))

    run_part(unit, name, done)


MEASURES = {f.__name__: f for f in (ncf, linear, grouping, copies, race, grading, checkup)}


def main(name: str, path: str) -> None:
    """Run the measurement `name`, or the part "unit/part", and write its rows to the file
    `path`.
    """
    rows = Rows(path)
    unit, _, of = name.partition("/")
    try:
        part(unit, of, rows) if of else MEASURES[name](rows)
    except Exception as error:
        notes = " ".join(itertools.chain([str(error)], getattr(error, "__notes__", [])))
        rows.put("failed", f"{type(error).__name__}: {' '.join(notes.split())[:300]}")
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])

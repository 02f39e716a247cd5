"""The maps of batch size and learning rate that part 03/2 shows, run square by square.

Every run is written to a file immediately, so an interrupted map continues where it was.
"""

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict

from course import sizes
from course.datasets import data_folder, movielens
from course.device import machine
from course.figures.batch_rate_map import RECORDED, RateMap
from course.notebook.solutions import load_solutions
from course.training import rate_maps
from course.training.rate_maps import MakeOptimizer, adam, sgd
from course.training.recommender import Experiment

UNIT = "03_large_batch"
KEPT = "rate-maps-bench.jsonl"
FACTORS = (1, 4, 16, 64, 192)  # of the smallest batch of NCF
RATES = 6  # per map, each four times the one before
# (model, optimizer) -> (batches, lowest learning rate)
NCF = [256 * factor for factor in FACTORS]
TRANSFORMER = [8, 32, 128, 512, 2048]
CNN = [16, 64, 256, 1024, 4096]
MAPS = {
    ("NCF", "SGD"): (NCF, 0.125),
    ("NCF", "Adam"): (NCF, 0.0003125),
    ("NCF", "LARS"): (NCF, 0.25),
    ("transformer", "SGD"): (TRANSFORMER, 0.005),
    ("transformer", "Adam"): (TRANSFORMER, 0.0005),
    ("CNN", "SGD"): (CNN, 0.00125),
    ("CNN", "Adam"): (CNN, 0.0003125),
}
SCORED = {
    "NCF": "HR@10",
    "transformer": "share of right tokens",
    "CNN": "accuracy",
}


def run(seeds: int) -> list[RateMap]:
    """Run all squares that are not kept yet, and write the maps to RECORDED.

    The quickest squares come first, those of the largest batch; the maps are written after each
    batch size, so an interrupted run leaves maps with squares that were not run.
    """
    print(f"{machine()}\nruns are kept in {data_folder() / KEPT}")
    kept = _kept()
    squares = _Squares()
    for seed in range(seeds):
        for column in reversed(range(len(FACTORS))):
            for key in MAPS:
                _run_column(key, column, seed, kept, squares)
            _write([_map(key, kept, seeds, squares) for key in MAPS])
            print(f"column {column} of all maps, seed {seed}: done", flush=True)
    return [_map(key, kept, seeds, squares) for key in MAPS]


def _run_column(key, column, seed, kept, squares) -> None:
    batches, lowest = MAPS[key]
    for power in range(RATES):
        square = (batches[column], lowest * 4**power)
        name = json.dumps([*key, *square, seed])
        if name not in kept:
            kept[name] = squares.score(key, *square, seed)
            _keep(name, kept[name])


def _write(maps: list[RateMap]) -> None:
    """Write the maps of which a square of each column was run."""
    whole = [one for one in maps if all(set(row) != {None} for row in one.scores)]
    text = json.dumps([asdict(one) for one in whole])
    RECORDED.write_text(text.replace("}, {", "},\n{") + "\n", encoding="utf-8")


class _Squares:
    """Runs one square of one map; prepares the data once."""

    def __init__(self):
        self.sizes = sizes(UNIT)
        self.experiment = Experiment(self.sizes)
        self.real = movielens.load(self.sizes.dataset).real
        self.answers = load_solutions(UNIT)

    def score(self, key: tuple[str, str], batch: int, lr: float, seed: int) -> float:
        model, optimizer = key
        make_optimizer = self._optimizer(optimizer, lr)
        if model == "NCF":
            epochs = self.sizes.long_epochs
            return rate_maps.ncf_score(self.experiment, make_optimizer, batch, epochs, seed)
        score: Callable[..., float] = getattr(rate_maps, f"{model.lower()}_score")
        return score(make_optimizer, batch, seed)

    def _optimizer(self, name: str, lr: float) -> MakeOptimizer:
        if name == "LARS":
            return lambda parameters: self.answers.LARS(parameters, lr=lr, exclude_1d=False)
        return sgd(lr) if name == "SGD" else adam(lr)

    def data(self, model: str) -> str:
        """The name of the data of a model."""
        if model == "NCF":
            return self.sizes.dataset if self.real else f"a stand-in of {self.sizes.dataset}"
        return {"transformer": "drawn text", "CNN": "Fashion-MNIST"}[model]


def _map(key, kept, seeds, squares) -> RateMap:
    """The map of what was run: the means over the seeds."""
    model, optimizer = key
    batches, lowest = MAPS[key]
    rates = [lowest * 4**power for power in range(RATES)]
    rows = []
    for batch in batches:
        row = []
        for lr in rates:
            names = [json.dumps([*key, batch, lr, seed]) for seed in range(seeds)]
            known = [kept[name] for name in names if name in kept]
            row.append(round(statistics.mean(known), 3) if known else None)
        rows.append(row)
    return RateMap(
        model=model,
        optimizer=optimizer,
        score=SCORED[model],
        data=squares.data(model),
        epochs=squares.sizes.long_epochs if model == "NCF" else 1,
        seeds=seeds,
        batches=batches,
        rates=rates,
        scores=rows,
    )


def _kept() -> dict[str, float]:
    path = data_folder() / KEPT
    if not path.exists():
        return {}
    return dict(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def _keep(name: str, score: float) -> None:
    with (data_folder() / KEPT).open("a", encoding="utf-8") as file:
        file.write(json.dumps([name, score]) + "\n")

"""Give each way the best of several learning rates: *a training -> its scores at the best one*.

The learning rate is chosen with some seeds and judged with others. Otherwise the way that tries
more of them would win by luck.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

FIRST_TUNING_SEED = 1000  # far from those that judge


@dataclass(frozen=True)
class Tuned:
    """What a way reached: {learning rate: scores of the tuning seeds}, and at the best its scores.

    `scores` has one per seed, so two ways that were tuned alike differ seed by seed.
    """

    tried: dict[float, list[float]]
    best: float
    scores: list[float]

    def __str__(self) -> str:
        scores = " ".join(f"{score:.3f}" for score in self.scores)
        if not self.tried:
            return f"at learning rate {self.best:g}: {scores}"
        rates = sorted(self.tried)
        is_edge = self.best in (rates[0], rates[-1])
        place = f"learning rate {self.best:g}{', the edge' if is_edge else ''}"
        found = []
        for lr, tuning_scores in self.tried.items():
            found.append(f"{lr:g}: {statistics.mean(tuning_scores):.3f}")
        return f"tried learning rate {', '.join(found)}; other seeds at {place}: {scores}"


def tuned(
    train: Callable[[float, int], float],
    learning_rates: Sequence[float],
    seeds: int,
    tuning_seeds: int = 2,
) -> Tuned:
    """The scores of `seeds` trainings at the best of `learning_rates`.

    Args:
        train: called with a learning rate and a seed, gives a score; higher is better.
        tuning_seeds: trainings per learning rate that choose the best one, by their mean; none if
            there is only one.
    """
    if len(learning_rates) == 1:
        return Tuned(
            {}, learning_rates[0], [train(learning_rates[0], seed) for seed in range(seeds)]
        )
    tried = {}
    for lr in learning_rates:
        tried[lr] = [train(lr, FIRST_TUNING_SEED + seed) for seed in range(tuning_seeds)]
    best = max(tried, key=lambda lr: statistics.mean(tried[lr]))
    return Tuned(tried, best, [train(best, seed) for seed in range(seeds)])

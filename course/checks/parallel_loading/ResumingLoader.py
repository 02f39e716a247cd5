"""Probe of exercise ResumingLoader: loaders that are cut, and others that continue."""

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Dataset

from course.engine.exercise import Answer, Facts, exercise

BATCH = 3
PASSES_MAX = 4  # that are asked for; a pass may be empty after a cut behind the last batch


class _Noted(Dataset):
    """Items [i]; how often each was read is counted in shared memory."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.reads = torch.zeros(n, dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> torch.Tensor:
        self.reads[i] += 1
        return torch.tensor([i])


@exercise(starts_processes=True)
def ResumingLoader(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The batches that follow after cuts at several places."""
    with warnings.catch_warnings():
        # Python warns of a fork while threads run, torch warns of more workers than cores
        warnings.simplefilter("ignore")
        yield from _facts(answer, seed)


def _facts(answer: Answer, seed: int) -> Facts:
    n = 5 + seed % 3  # batches per epoch
    n_items = BATCH * n - 1

    def new(workers: int = 0) -> Any:
        return answer(_Noted(n_items), BATCH, workers, seed)

    whole = new()
    epochs = [[_indices(batch) for batch in whole] for _ in range(2)]
    yield "without a cut: the batches of two epochs", epochs
    run = epochs[0] + epochs[1]
    places = {
        "before the first batch": 0,
        "after one batch": 1,
        "in the middle of an epoch": n // 2,
        "before the last batch of an epoch": n - 1,
        "in the second epoch": n + 2,
    }
    for place, k in places.items():
        resumed = new()
        resumed.load_state_dict(_copied(_cut(new(), k)))
        yield f"cut {place}: the batches that follow", _following(resumed, len(run) - k)
    resumed = new()
    resumed.load_state_dict(_copied(_cut(new(), 2)))
    yield "cut after two batches: the next two passes have", [len(list(resumed)) for _ in range(2)]
    resumed = new()
    resumed.load_state_dict(_copied(_cut(new(), n)))
    yield "cut while the loop has the last batch: what follows", _following(resumed, n)
    ended = new()
    list(ended)
    resumed = new()
    resumed.load_state_dict(_copied(ended.state_dict()))
    yield "cut between two epochs: the batches that follow", _following(resumed, n)
    yield from _states(new, n)
    yield from _with_workers(new, n, len(run))


def _states(new: Callable[..., Any], n: int) -> Facts:
    """What is true of the state itself."""
    running = new()
    batches = iter(running)
    next(batches)
    state = running.state_dict()
    list(batches)
    resumed = new()
    resumed.load_state_dict(state)
    yield "a state stays as it was while the loader continues", _following(resumed, n - 1)
    resumed = new()
    resumed.load_state_dict(_copied(_cut(new(), 2)))
    again = new()
    again.load_state_dict(_copied(resumed.state_dict()))
    yield "a state that is loaded and saved again", _following(again, n - 2)
    resumed = new()
    resumed.load_state_dict(_copied(_cut(new(), n - 2)))
    list(resumed)
    reads = resumed.dataset.reads
    yield "the rest of an epoch is read once, and no item before the cut", sorted(reads.tolist())


def _with_workers(new: Callable[..., Any], n: int, run: int) -> Facts:
    """Cuts while workers have built further batches."""
    for workers, k in ((1, 1), (2, 2), (3, n - 1), (2, n + 1)):
        resumed = new(workers)
        resumed.load_state_dict(_copied(_cut(new(workers), k)))
        followed = _following(resumed, run - k)
        yield f"{workers} workers, cut after batch {k - 1}: the batches that follow", followed
    resumed = new(0)
    resumed.load_state_dict(_copied(_cut(new(3), 2)))
    yield "cut with three workers, continued without: what follows", _following(resumed, n - 2)


def _cut(loader: Any, k: int) -> Any:
    """The state while the loop has batch number k, counted from 1; 0: before the first pass."""
    if not k:
        return loader.state_dict()
    taken = 0
    for _ in range(PASSES_MAX):
        for _ in loader:
            taken += 1
            if taken == k:
                return loader.state_dict()
    raise RuntimeError(f"only {taken} batches came in {PASSES_MAX} passes, not {k}")


def _following(loader: Any, most: int) -> list[list[list[int]]]:
    """The next `most` batches, of as many passes as it takes."""
    found = []
    for _ in range(PASSES_MAX):
        for batch in loader:
            found.append(_indices(batch))
            if len(found) == most:
                return found
    return found


def _indices(batch: torch.Tensor) -> list[list[int]]:
    return batch.tolist()


def _copied(state: Any) -> Any:
    """The state, as a file gives it back."""
    return pickle.loads(pickle.dumps(state))

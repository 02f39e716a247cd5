"""Loaders with worker processes, of which none is left behind, whatever an answer in them does."""

import warnings
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader, Dataset


class Asked(Dataset):
    """`n` items; item i is `ask(i)`, called wherever the loader makes it."""

    def __init__(self, n: int, ask: Callable[[int], Any]) -> None:
        self.n = n
        self.ask = ask

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        return self.ask(i)


def epochs(dataset: Dataset, n: int = 1, num_workers: int = 2, **settings: Any) -> list[list[Any]]:
    """The batches of each of `n` epochs of a DataLoader.

    Workers are forked, because what a notebook cell defines cannot be pickled.
    """
    if num_workers:
        settings |= {"multiprocessing_context": "fork", "timeout": 15}
    with warnings.catch_warnings():
        # Python warns of a fork while threads run, torch warns of more workers than cores
        warnings.simplefilter("ignore")
        loader = DataLoader(dataset, num_workers=num_workers, **settings)
        return [_epoch(loader) for _ in range(n)]


def _epoch(loader: DataLoader) -> list[Any]:
    batches = iter(loader)
    try:
        return list(batches)
    except Exception as error:
        # the words of torch for what was raised in a worker
        if not str(error).startswith("Caught "):
            raise
        raise RuntimeError(f"in a worker: {str(error).strip().splitlines()[-1]}") from None
    finally:
        getattr(batches, "_shutdown_workers", lambda: None)()  # an exception would keep them alive

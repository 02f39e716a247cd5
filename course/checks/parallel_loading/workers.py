"""Loaders with worker processes, in which probes run answers; no worker is left behind, whatever an
answer does.
"""

import warnings

from torch.utils.data import DataLoader, Dataset


class Asked(Dataset):
    """`n` items; item i is `ask(i)`, called wherever the loader makes it."""

    def __init__(self, n, ask):
        self.n, self.ask = n, ask

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.ask(i)


def epochs(dataset, n=1, num_workers=2, **settings):
    """The batches of each of `n` epochs of a DataLoader, a list of lists.

    Workers are forked, because what a notebook cell defines cannot be pickled.
    """
    if num_workers:
        settings |= {"multiprocessing_context": "fork", "timeout": 15}
    with warnings.catch_warnings():
        # Python warns of a fork beside threads, torch of workers without a core
        warnings.simplefilter("ignore")
        loader = DataLoader(dataset, num_workers=num_workers, **settings)
        return [_epoch(loader) for _ in range(n)]


def _epoch(loader):
    batches = iter(loader)
    try:
        return list(batches)
    except Exception as error:
        if not str(error).startswith(
            "Caught "
        ):  # the words of torch for what was raised in a worker
            raise
        raise RuntimeError(f"in a worker: {str(error).strip().splitlines()[-1]}") from None
    finally:
        getattr(batches, "_shutdown_workers", lambda: None)()  # an exception would keep them alive

"""What part 6 of unit 01 needs to race loaders of threads against loaders of processes."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch.utils.data import Dataset

from course.loading.loaders import JpegDecoder


class Decoded(Dataset):
    """The first `n` images of `decoder`, each a new tensor of the form of `like`."""

    def __init__(self, decoder: JpegDecoder, like: Tensor, n: int):
        self.decoder = decoder
        self.shape = like.shape
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Tensor:
        image = torch.empty(self.shape)
        self.decoder(i, image)
        return image


def batches_of(n_items: int, batch_size: int, n_batches: int) -> list[list[int]]:
    """The indices of `n_batches` shuffled batches; items come again in the same order."""
    shuffled = torch.randperm(n_items, generator=torch.Generator().manual_seed(1)).tolist()
    batches = []
    for k in range(n_batches):
        places = range(k * batch_size, (k + 1) * batch_size)
        batches.append([shuffled[place % n_items] for place in places])
    return batches


def assert_equal(ways: Mapping[str, Iterable[Tensor]]) -> None:
    """Run each loader once, and assert that it gives the batches of the first, to the bit."""
    first, *others = ways
    expected = [batch.clone() for batch in ways[first]]
    for way in others:
        for batch, right in zip(ways[way], expected, strict=True):
            assert torch.equal(batch, right), f"{way}: other pixels than {first}"

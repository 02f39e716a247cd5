"""Probe of exercise flatten_batch."""

import torch

from course.checks.batch_grouping.ragged import some_lengths
from course.engine.exercise import Answer, Facts, exercise


@exercise()
def flatten_batch(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The real tokens of a padded batch in a row, and where each sequence begins."""
    rng = torch.Generator().manual_seed(seed)
    lengths = some_lengths(rng, 6 + seed % 4, 7)
    mask = (torch.arange(7) < lengths[:, None]).to(device)
    x = torch.randint(0, 8, mask.shape, generator=rng).to(device)
    values, offsets = answer(x, mask)
    yield "dtypes", (str(values.dtype), str(offsets.dtype))
    yield "tokens in order, none of the padding", values
    yield "offsets: where each sequence begins, and the end", offsets
    yield "one sequence", list(answer(x[:1], mask[:1]))
    features = torch.randn(*mask.shape, 3, generator=rng).to(device)
    yield "tokens with features", answer(features, mask)[0]

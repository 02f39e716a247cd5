"""Probe of exercise padded_forward."""

import torch

from course.checks.batch_grouping.ragged import pool_model, some_lengths
from course.checks.engine import exercise


@exercise()
def padded_forward(answer, device, seed):
    """The score of each row of a padded batch: what stands in the padding must not matter."""
    rng = torch.Generator().manual_seed(seed)
    model = pool_model(seed, device)
    lengths = some_lengths(rng)
    mask = (torch.arange(int(lengths.max())) < lengths[:, None]).to(device)
    x = torch.randint(0, 8, mask.shape, generator=rng).to(device)
    scores = answer(model, x * mask, mask)
    yield "returns one score per row", scores.shape
    yield "the scores are finite numbers", bool(scores.isfinite().all())
    yield "tokens in the padding change no score", bool(answer(model, x, mask).allclose(scores))
    other = torch.where(mask, 7 - x, x * mask)
    yield "other tokens in place of the real ones change scores", not answer(model, other, mask).allclose(scores)
    yield "scores", scores
    row, alone = int(lengths.argmin()), slice(0, int(lengths.min()))
    yield (
        "a row of its own gives its score in the batch",
        answer(model, x[row : row + 1, alone], mask[row : row + 1, alone]),
    )
    with torch.no_grad():
        model.linear.bias.sub_(50)  # every feature is below 0
    each = torch.tensor([[token, 0] for token in range(8)], device=device)
    beside = torch.tensor([[True, False]] * 8, device=device)
    yield "each token next to padding, features that are all below -40", answer(model, each, beside)
    answer(model, x, mask).sum().backward()
    yield "gradients of the weights", {name: p.grad for name, p in model.named_parameters()}
    with torch.no_grad():
        model.linear.bias.sub_(5000)
    yield "features that are all below -5,000", answer(model, x, mask)

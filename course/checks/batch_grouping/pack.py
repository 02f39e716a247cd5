"""Probe of exercise pack."""

import torch

from course.engine.exercise import Answer, Facts, exercise


def _drawn(rng: torch.Generator, lengths: list[int], device: torch.device) -> list[torch.Tensor]:
    """Sequences of these lengths."""
    return [torch.randint(0, 100, (length,), generator=rng).to(device) for length in lengths]


@exercise()
def pack(answer: Answer, device: torch.device, seed: int) -> Facts:
    """One flat batch: its tokens, the position of each, and where each sequence begins."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 8, (5 + seed % 4,), generator=rng).tolist()
    members = _drawn(rng, lengths, device)
    tokens, positions, cu_seqlens = answer(members)
    shapes = [tuple(part.shape) for part in (tokens, positions, cu_seqlens)]
    yield "shapes of tokens, positions and cu_seqlens", shapes
    yield "dtypes", [str(part.dtype) for part in (tokens, positions, cu_seqlens)]
    yield "tokens: one sequence after the other", tokens
    yield "positions: from 0 in each sequence", positions
    yield "cu_seqlens: where each sequence begins, and the end", cu_seqlens
    yield "sequences of one token", list(answer(_drawn(rng, [1, 1, 1], device)))
    yield "a single sequence", list(answer(members[:1]))
    yield "the longest sequence first", list(answer(_drawn(rng, [6, 1, 3], device)))
    yield (
        "the device of the sequences",
        {part.device.type for part in answer(members)} == {device.type},
    )

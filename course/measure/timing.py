"""Read the clock when a device is done, and word the time of a few passes.

To compare two ways: comparison.py.
"""

import time

import torch


def now(device: torch.device | str = "cpu") -> float:
    """The seconds of a clock, read when all work that was queued on `device` has ended."""
    getattr(torch, torch.device(device).type).synchronize(device)
    return time.perf_counter()


def timing_line(seconds: torch.Tensor, n_batches: int, batch_size: int) -> str:
    """Text "2.519 ± 0.042 s for 100 batches, 2,541 images/s".

    The first numbers are the mean and the sample standard deviation of passes.

    Args:
        seconds: float64 tensor (repeats,), of each pass; one alone has no spread.
        n_batches, batch_size: of a pass.
    """
    mean = seconds.mean().item()
    spread = f" ± {seconds.std().item():.3f}" if len(seconds) > 1 else ""
    images_per_second = n_batches * batch_size / mean
    return f"{mean:.3f}{spread} s for {n_batches} batches, {images_per_second:,.0f} images/s"

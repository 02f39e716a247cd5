"""The global sources of random numbers, which an answer leaves alone unless its task says else."""

import random
from typing import Any

import numpy as np
import torch


def random_state() -> tuple[Any, ...]:
    """The state of the global generators of torch (CPU), Python and NumPy, to compare by `==`."""
    return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())

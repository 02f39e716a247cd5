"""A device of so many FLOP/s: matrix products are computed, then the rank rests until it is done.

So ranks that share a core do not slow each other down, as long as they rest most of the time.
"""

import time
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class SlowDevice(TorchDispatchMode):
    """In the block each operation that torch counts FLOPs of takes them over `flops` seconds.

    It holds in the forward and the backward pass. What computes longer than that is not slowed.

    Args:
        flops: per second; infinity slows nothing.
    """

    def __init__(self, flops: float) -> None:
        super().__init__()
        self.flops = flops

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        started = time.perf_counter()
        output = func(*args, **kwargs)
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            seconds = count(*args, **kwargs, out_val=output) / self.flops
            time.sleep(max(0.0, started + seconds - time.perf_counter()))
        return output

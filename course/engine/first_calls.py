"""Make the first calls of oneMKL's functions at import, by one thread.

oneMKL finds out at the first call of an elementwise function which of its kernels is the right one.
Where threads make that call at the same time on a busy machine, one may be answered by a kernel of
half the digits, once: a right answer that runs replicas in threads is then off by 5e-5
(github.com/pytorch/pytorch/issues/188792; oneMKL 2024.2, which torch 2.13 has). Forks keep what
their parent has found out.
"""

import torch

NAMES = (
    "acos asin atan cos cosh erf erfc erfinv exp expm1 lgamma log log10 log1p log2 rsqrt sin sinh "
    "sqrt tan tanh"
)

for _dtype in (torch.float32, torch.float64):
    for _name in NAMES.split():
        getattr(torch, _name)(torch.full((1,), 0.5, dtype=_dtype, device="cpu"))

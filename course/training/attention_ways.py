"""Attention on a flat batch by PyTorch's kernels: q, k, v and offsets -> *each kernel's result*.

All take and give tensors (1, heads, total, d). What a machine lacks is told as a reason, a str.
"""

import functools
import logging
import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import profiler_legacy
from torch.nn import functional as F
from torch.nn.attention import flex_attention as flex

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
CHOSEN = "aten::_scaled_dot_product_"  # how a profiler names an implementation


def hide_prototype_warnings() -> None:
    """Keep nested tensors and uncompiled FlexAttention from warning and logging at first use."""
    warnings.filterwarnings("ignore", "The PyTorch API of nested tensors is in prototype stage")
    warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
    logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)


def drawn(total: int, heads: int, d: int, device: torch.device) -> list[Tensor]:
    """q, k and v, each (1, heads, total, d) and random, that ask for a gradient."""
    rng = torch.Generator().manual_seed(0)
    parts = [torch.randn(1, heads, total, d, generator=rng) for _ in range(3)]
    return [part.to(device).requires_grad_() for part in parts]


def in_bfloat16(qkv: list[Tensor]) -> list[Tensor]:
    """The same q, k and v in bfloat16, the precision that all kernels take."""
    return [part.detach().to(torch.bfloat16).requires_grad_() for part in qkv]


def masked(mask: Tensor) -> Attention:
    """Attention under a mask of all pairs, bool (total, total)."""
    return functools.partial(F.scaled_dot_product_attention, attn_mask=mask)


def nested(offsets: Tensor) -> Attention:
    """With nested tensors: int64 offsets (n + 1,)."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        made = []
        for part in (q, k, v):
            flat = part[0].transpose(0, 1).contiguous()
            made.append(torch.nested.nested_tensor_from_jagged(flat, offsets).transpose(1, 2))
        found = F.scaled_dot_product_attention(*made)
        return found.transpose(1, 2).values().transpose(0, 1)[None]

    return attend


def varlen(offsets: Tensor) -> Attention:
    """With PyTorch's kernel for variable lengths; CUDA and tensors in half precision only."""
    from torch.nn.attention.varlen import varlen_attn

    ends = offsets.int()
    longest = int(offsets.diff().max())

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        flat = [part[0].transpose(0, 1).contiguous() for part in (q, k, v)]
        return varlen_attn(*flat, ends, ends, longest, longest).transpose(0, 1)[None]

    return attend


def blocks_of(owner: Tensor) -> "flex.BlockMask":
    """FlexAttention's mask of a flat batch; `owner` is the sequence of each token."""
    total = len(owner)
    return flex.create_block_mask(
        lambda b, h, i, j: owner[i] == owner[j], None, None, total, total, owner.device
    )


def flexible(owner: Tensor, is_compiled: bool) -> Attention:
    """FlexAttention under the blocks of `owner`."""
    attention = torch.compile(flex.flex_attention) if is_compiled else flex.flex_attention
    return functools.partial(attention, block_mask=blocks_of(owner))


def flexible_forward(owner: Tensor, qkv: list[Tensor]) -> Tensor | str:
    """What uncompiled FlexAttention gives, or the reason why it does not run on this machine."""
    plain = [part.detach() for part in qkv]
    try:
        return flexible(owner, False)(*plain)
    except Exception as why:  # it needs torch.compile, which some versions of Python lack
        return str(why).splitlines()[0]


def backward_of(attention: Attention, qkv: list[Tensor]) -> Callable[[], None]:
    """A function without arguments that runs `attention` forward and backward."""

    def run() -> None:
        attention(*qkv).sum().backward()

    return run


def fast_kernels(qkv: list[Tensor], offsets: Tensor) -> dict[str, Callable[[], None] | str]:
    """{kernel: a run forward and backward, or the reason why this machine has none}."""
    if qkv[0].device.type != "cuda":
        return {"varlen": "it needs CUDA", "FlexAttention": "backward needs CUDA"}
    owner = torch.arange(len(offsets) - 1, device=offsets.device).repeat_interleave(offsets.diff())
    makers = {"varlen": lambda: varlen(offsets), "FlexAttention": lambda: flexible(owner, True)}
    found = {}
    for name, make in makers.items():
        try:
            run = backward_of(make(), qkv)
            run()
            found[name] = run
        except Exception as why:  # no Triton, an older GPU: the compiler raises its own errors
            found[name] = str(why).splitlines()[0]
    return found


def kernel_of(run: Callable[[], object]) -> str:
    """The implementation of attention that torch chose for `run()`.

    "attention_math" means that torch writes out the products of attention. The new profiler
    writes messages to stderr, so this is the former one.
    """
    with profiler_legacy.profile() as seen:
        run()
    for event in seen.function_events:
        if event.name.startswith(CHOSEN):
            return event.name.removeprefix(CHOSEN)
    return "none"

"""What torch chose for attention, and all kernels in one precision."""

import torch

from course.training import attention_ways


def test_the_implementation_of_attention_is_named():
    qkv = attention_ways.drawn(6, 2, 8, torch.device("cpu"))
    mask = torch.ones(6, 6, dtype=torch.bool)
    four = attention_ways.backward_of(attention_ways.masked(mask), qkv)
    three = attention_ways.backward_of(attention_ways.masked(mask), [part[0] for part in qkv])
    assert attention_ways.kernel_of(four).startswith("flash_attention")
    assert attention_ways.kernel_of(three) == "attention_math"
    assert attention_ways.kernel_of(lambda: torch.ones(2).sum()) == "none"


def test_halves_are_the_same_numbers_and_ask_for_gradients():
    qkv = attention_ways.drawn(6, 2, 8, torch.device("cpu"))
    halves = attention_ways.in_bfloat16(qkv)
    for part, half in zip(qkv, halves, strict=True):
        assert half.dtype == torch.bfloat16
        assert half.requires_grad
        torch.testing.assert_close(half.float(), part, rtol=1e-2, atol=1e-2)

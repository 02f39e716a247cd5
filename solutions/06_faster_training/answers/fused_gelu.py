"""Known mistakes of exercise fused_gelu, and right answers in other styles."""

import math

import torch

from course.checks.engine import alternative, mistake


@mistake(
    "fused_gelu",
    "The constant has six digits, as in the snippet that many lists copy. Take the root of 2 itself: math.sqrt(2).",
)
def six_digits(x):
    return x * 0.5 * (1.0 + torch.erf(x / 1.41421))


@mistake("fused_gelu", "The constant has eight digits. float64 has sixteen: take math.sqrt(2).")
def eight_digits(x):
    return 0.5 * x * (1 + torch.erf(x * 0.70710678))


@mistake("fused_gelu", "The root of 2 was taken in float32. Take it as a Python number, which has sixteen digits.")
def root_in_float32(x):
    return 0.5 * x * (1 + torch.erf(x / torch.sqrt(torch.tensor(2.0, device=x.device))))


@mistake(
    "fused_gelu", "The error function is taken of float32 numbers, seven digits of them. Compute in the dtype of x."
)
def erf_in_float32(x):
    return 0.5 * x * (1 + torch.erf(x.float() / math.sqrt(2)).to(x.dtype))


@mistake("fused_gelu", "x is multiplied by the root of 2. The normal distribution divides by it.")
def multiplied(x):
    return 0.5 * x * (1 + torch.erf(x * math.sqrt(2)))


@mistake("fused_gelu", "The root of 2 is missing: erf(x) belongs to a normal distribution of deviation 0.71.")
def without_the_root(x):
    return 0.5 * x * (1 + torch.erf(x))


@mistake("fused_gelu", "That is the approximation by tanh. Write the exact form, with torch.erf.")
def by_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@mistake("fused_gelu", "That is the approximation by a sigmoid. Write the exact form, with torch.erf.")
def by_sigmoid(x):
    return x * torch.sigmoid(1.702 * x)


@mistake("fused_gelu", "The factor 1/2 is missing: 1 + erf runs from 0 to 2.")
def without_the_half(x):
    return x * (1 + torch.erf(x / math.sqrt(2)))


@mistake("fused_gelu", "That is the distribution function alone. GELU multiplies it by x.")
def without_x(x):
    return 0.5 * (1 + torch.erf(x / math.sqrt(2)))


@alternative("fused_gelu")
def by_erfc(x):
    return x * torch.erfc(-x * math.sqrt(0.5)) / 2


@alternative("fused_gelu")
def by_ndtr(x):
    return x * torch.special.ndtr(x) if x.dtype != torch.bfloat16 else 0.5 * x * (1 + torch.erf(x / 2**0.5))

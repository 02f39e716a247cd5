"""Known mistakes of exercise fused_gelu, and right answers in other styles."""

import math

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "six_digits": (
        "The constant has six digits. Take the root of 2 itself: math.sqrt(2).",
        ("math.sqrt(2)", "1.41421"),
    ),
    "eight_digits": (
        "The constant has eight digits. float64 has sixteen: take math.sqrt(2).",
        ("/ math.sqrt(2)", "* 0.70710678"),
    ),
    "root_in_float32": (
        "The root of 2 was taken in float32. Take it as a Python number, which has sixteen digits.",
        ("math.sqrt(2)", "torch.sqrt(torch.tensor(2.0, device=x.device))"),
    ),
    "erf_in_float32": (
        "The error function is computed in float32, which has seven digits. Compute in the dtype of x.",
        ("torch.erf(x / math.sqrt(2))", "torch.erf(x.float() / math.sqrt(2)).to(x.dtype)"),
    ),
    "multiplied": (
        "x is multiplied by the root of 2. The normal distribution divides by it.",
        ("x / math", "x * math"),
    ),
    "without_the_root": (
        "The root of 2 is missing: erf(x) belongs to a normal distribution of deviation 0.71.",
        (" / math.sqrt(2)", ""),
    ),
    "by_tanh": (
        "That is the approximation by tanh. Write the exact form, with torch.erf.",
        (
            "torch.erf(x / math.sqrt(2))",
            "torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))",
        ),
    ),
    "by_sigmoid": (
        "That is the approximation by a sigmoid. Write the exact form, with torch.erf.",
        ("0.5 * x * (1 + torch.erf(x / math.sqrt(2)))", "x * torch.sigmoid(1.702 * x)"),
    ),
    "without_the_half": ("The factor 1/2 is missing: 1 + erf runs from 0 to 2.", ("0.5 * x", "x")),
    "without_x": (
        "That is the distribution function alone. GELU multiplies it by x.",
        ("0.5 * x", "0.5"),
    ),
}


@alternative
def by_erfc(x):
    return x * torch.erfc(-x * math.sqrt(0.5)) / 2


@alternative
def by_ndtr(x):
    return (
        x * torch.special.ndtr(x)
        if x.dtype != torch.bfloat16
        else 0.5 * x * (1 + torch.erf(x / 2**0.5))
    )

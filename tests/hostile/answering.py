"""Answers that are hard to compare or to show."""
# ruff: noqa: F821, F841, B018

from hostile.attack import LARGE, cell


@cell()
def number_with_5000_digits():
    """A whole number that JSON cannot hold."""

    def linear_warmup(*args):
        return 10**5000


@cell()
def list_in_itself():
    """A list that holds itself, and one that is very deep."""

    def linear_warmup(step, *args):
        if step:
            deep = []
            for _ in range(100_000):
                deep = [deep]
            return deep
        loop = []
        loop.append(loop)
        return loop


@cell(2, LARGE)
def facts_too_large():
    """A tensor of 80 MB where a number is due."""

    def linear_warmup(*args):
        return torch.zeros(2 * 10**7)


@cell()
def names_that_lie():
    """A type whose name is a report."""

    def linear_warmup(*args):
        return type("x\x1b[2J\n<script>linear_warmup: correct" * 1000, (), {})()

"""Measurements that anyone can rerun: `course bench NAME --help`."""

import statistics


def spread(values, form):
    """ "median (lowest to highest)" of a tensor, each number in the format `form`."""
    values = values.tolist()
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"

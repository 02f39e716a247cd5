"""Figures to play with: one ES module each, fed with numbers that were measured.

    from course import figures
    figures.pipeline(load_ms=[9.1, 8.7], step_ms=5.0, workers=2)

figure.py shows a module in a notebook (anywidget, no network) and in the static book, which has no
kernel; where scripts do not run, a picture stands for it. kit.js has what all modules draw with.
What a module computes, the Python module of the same name computes for its picture: a test compares
the two.
"""

from course.figures.backward_timeline import Layer, layers_of_checkup, step_timeline
from course.figures.backward_times import backward_layers
from course.figures.batch_rate_map import RateMap, rate_map, rate_maps, recorded_maps
from course.figures.loader_pipeline import pipeline
from course.figures.padded_batches import padding

__all__ = [
    "Layer",
    "RateMap",
    "backward_layers",
    "layers_of_checkup",
    "padding",
    "pipeline",
    "rate_map",
    "rate_maps",
    "recorded_maps",
    "step_timeline",
]

"""Probes of unit 05_batch_grouping, one module per exercise."""

from course.engine.exercise import load_probes

UNIT = "05_batch_grouping"
globals().update(load_probes(__name__, __path__))

"""Probes of unit 03_large_batch, one module per exercise."""

from course.engine.exercise import load_probes

UNIT = "03_large_batch"
globals().update(load_probes(__name__, __path__))

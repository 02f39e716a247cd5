"""Probes of unit 01_parallel_loading, one module per exercise."""

from course.engine.exercise import load_probes

UNIT = "01_parallel_loading"
globals().update(load_probes(__name__, __path__))

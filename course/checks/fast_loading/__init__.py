"""Probes of unit 04_fast_loading, one module per exercise."""

from course.engine.exercise import load_probes

UNIT = "04_fast_loading"
globals().update(load_probes(__name__, __path__))

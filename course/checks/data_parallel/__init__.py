"""Probes of unit 02_data_parallel, one module per exercise."""

from course.engine.exercise import load_probes

UNIT = "02_data_parallel"
globals().update(load_probes(__name__, __path__))

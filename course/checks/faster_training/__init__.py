"""Probes of unit 06_faster_training, one module per exercise."""

from course.engine.exercise import load_probes

UNIT = "06_faster_training"
globals().update(load_probes(__name__, __path__))

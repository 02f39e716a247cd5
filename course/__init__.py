"""Helper library of the workshop on scaling PyTorch training: what is given to the learner, and how answers are checked."""

from course.device import device, machine, scale, sizes

__all__ = ["device", "machine", "scale", "sizes"]

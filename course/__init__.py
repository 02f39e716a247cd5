"""Helper library of the workshop on scaling PyTorch training: what is given to the learner, how
answers are checked.
"""

import importlib
import threading

from tqdm import tqdm

from course.checkup import checkup  # the function, which takes the name of its package
from course.device import device, machine, scale
from course.experiment_sizes import sizes
from course.learner.progress import progress

__all__ = [
    "calibration",
    "checkup",
    "claim",
    "device",
    "machine",
    "progress",
    "scale",
    "score",
    "sizes",
    "solved",
]
# else bars share a lock with forked processes, and one that is killed while it holds it stops every
# later bar
tqdm.set_lock(threading.RLock())
# name -> its module, imported at first use, because torch takes seconds to import
_LAZY = {
    "calibration": "course.plots.calibration",
    "claim": "course.learner.claims",
    "score": "course.learner.predictions",
    "solved": "course.learner.solved",
}


def __getattr__(name):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__():
    return sorted({*globals(), *__all__})

"""The check-up: what the course knows, applied to a training that is not its own.

course checkup train.py --lr 0.1           # in a terminal: any script, as it is
report = course.checkup(loader, step)      # in a notebook, with step(batch)

watch.py        which phase each moment of a step belongs to: hooks, and a clock; phases.py their
names counted.py      what is looked at in the last steps alone patches.py      change torch for a
while and put everything back lines.py        the line of the script that runs script.py       run a
script as Python would facts.py        what was seen, as plain numbers ranks.py        which rank
the others wait for predict.py      what the formulas of the units say of it trials.py       what
can be tried without touching the script: replay.py the step, loaders.py other loaders advice.py
rules: from these to advice report.py       the screen, JSON; html.py the file with figures
notebook.py     course.checkup(loader, step) command.py      course checkup
"""

import sys
import types

from course.checkup.facts import padding_of as padding_of


def checkup(loader, step, **options):
    """The Report of a training in a notebook: see notebook.checkup."""
    from course.checkup import notebook

    return notebook.checkup(loader, step, **options)


class _Callable(types.ModuleType):
    """This package, which can be called: `course.checkup` is its name and the function's."""

    def __call__(self, loader, step, **options):
        return checkup(loader, step, **options)


sys.modules[__name__].__class__ = _Callable

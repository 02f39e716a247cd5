"""Facts of the visible check, which every learner has, given again in the order of its calls."""

from course.checks import large_batch
from hostile.attack import text


def _replayed(exercise):
    """The text of an answer that gives what the reference gave to the probe of the visible check, call by call."""
    right, given = exercise.reference(), []

    def noted(*args, **kwargs):
        given.append(right(*args, **kwargs))
        return given[-1]

    exercise.at("cpu").run(noted)
    return f"given = iter({given})\n{exercise.name} = lambda *args, **kwargs: next(given)\n"


for _name in ("linear_warmup", "shows_frozen_bias"):
    text(f"replays_{_name}", at=_name, of=lambda name=_name: _replayed(getattr(large_batch, name)))

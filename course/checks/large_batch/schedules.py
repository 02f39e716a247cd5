"""Several steps of a learning rate schedule as one fact."""

from collections.abc import Iterable
from typing import Any

from course.engine.exercise import Answer


def learning_rates(
    answer: Answer, steps: Iterable[int], *settings: Any, **options: Any
) -> dict[str, Any]:
    """{"step 3": answer(3, *settings, **options), ...} for each of `steps`."""
    return {f"step {step}": answer(step, *settings, **options) for step in steps}

"""Show what the learner predicted next to what was measured."""

from collections.abc import Mapping, Sequence


def reveal(prediction: object, form: str = "{}") -> str:
    """The learner's prediction in brackets, to print after a measured value; "" for None.

    Args:
        prediction: what the learner wrote into the cell before the measurement, or None.
        form: format of the prediction, e.g. "{:.0%}".
    """
    return "" if prediction is None else f"   (you said {form.format(prediction)})"


def leaders(values: Mapping[str, float], margin: float, most: bool = False) -> list[str]:
    """The names whose value is within `margin` of the best one, best first.

    More than one are too close to call.

    Args:
        values: {name: measured value}.
        margin: differences up to this are noise, in the unit of the values.
        most: whether the largest value is the best (default: the smallest).
    """
    ranked = sorted(values, key=values.get, reverse=most)
    best = ranked[:1]
    for name in ranked[1:]:
        if abs(values[name] - values[ranked[0]]) <= margin:
            best.append(name)
    return best


def reveal_leader(prediction: object, best: Sequence[str]) -> str:
    """The best name with the prediction.

    If `best`, as `leaders` gives it, has several, they are too close to call.
    """
    names = " or ".join(best)
    if len(best) > 1:
        names += ": too close to call"
    return names + reveal(prediction)

"""Show what the learner predicted beside what was measured."""


def reveal(prediction: object, form: str = "{}") -> str:
    """The learner's prediction in brackets, to stand behind a measured value; an empty string for None.

    Args:
        prediction: what the learner wrote into the cell before the measurement, or None.
        form: format of the prediction, e.g. "{:.0%}".
    """
    return "" if prediction is None else f"   (you said {form.format(prediction)})"

"""Several steps of a learning rate schedule as one fact."""


def learning_rates(answer, steps, *settings, **options):
    """{"step 3": answer(3, *settings, **options), ...} for each of `steps`."""
    return {f"step {step}": answer(step, *settings, **options) for step in steps}

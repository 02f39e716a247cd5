"""From facts and advice to the other words of a report: the regime, what would not help."""

from course.checkup.advice import Advice, syncs
from course.checkup.advice.larger_batch import PER_SAMPLE_MIN
from course.checkup.facts import (
    INFERENCE_MODE,
    LARGER_BATCH,
    NUM_WORKERS,
    ONE_OPTIMIZER,
    THREADS,
    WITHOUT_ANOMALY,
    Facts,
)
from course.checkup.phases import (
    BACKWARD,
    CODE,
    COMMUNICATION,
    DATA,
    EVALUATION,
    FORWARD,
    OPTIMIZER,
    TRANSFER,
)
from course.checkup.predict import bound_of_data

TOO_FEW = "too few steps to tell"
LITTLE_DATA = 0.1  # share of a step that waits for data, below which no worker would help
EVALUATION_MIN = 0.5  # share of all the time
CEILING = 0.05  # share of a step that waits for data, below which no loader gains 5 %
LITTLE_OPTIMIZER = 0.05  # share of a step, below which no other kernel of it would help
# why a trial that was faster is not advised
LITTLE = "The whole step gains too little for a change."
NOT_WORTH = {
    LARGER_BATCH: "But a larger batch changes what is learned, so it has to gain more (06/2).",
}
RULE_OF_TRIAL = {
    LARGER_BATCH: "batch",
    ONE_OPTIMIZER: "optimizers",
    INFERENCE_MODE: "graphs",
    THREADS: "threads",
    WITHOUT_ANOMALY: "anomaly",
}


def regime(facts: Facts) -> str:
    """What holds this training back, in two or three words."""
    if not facts.phases:
        return TOO_FEW
    share = facts.phases.share
    trial = facts.trials.get(LARGER_BATCH)
    is_tiny = trial.helped and trial.step >= PER_SAMPLE_MIN
    compute = "overhead-bound" if is_tiny else "bound by the model's forward and backward pass"
    code = "sync-bound" if syncs.costs_time(facts) else "bound by the script's own code"
    waits = 0.0
    if facts.skew and facts.skew.is_proven:
        waits = min(share(COMMUNICATION, BACKWARD), facts.skew.waits / facts.seconds.median)
    waits_in_backward = max(0.0, waits - share(COMMUNICATION))
    shares = {
        "data-bound": share(DATA),
        "transfer-bound": share(TRANSFER),
        "communication-bound": max(0.0, share(COMMUNICATION) - waits),
        code: share(CODE),
        "bound by the optimizer's update": share(OPTIMIZER),
        compute: share(FORWARD, BACKWARD) - waits_in_backward,
        "waiting for a slower rank": waits,
        "bound by evaluation": share(EVALUATION),
    }
    if facts.evaluation.share > EVALUATION_MIN:  # of all the time, not of a step alone
        acts = facts.evaluation.in_train_mode
        return "bound by passes without gradients" if acts else "bound by evaluation"
    return max(shares, key=shares.get)


def at_the_ceiling(facts: Facts) -> str:
    """A sentence if hardly a step waits for data, so that no loader would help; else ""."""
    waits = facts.phases.share(DATA)
    if facts.loader is None or waits > CEILING:
        return ""
    most = f"{bound_of_data(facts):.2f} times as fast (01/1)"
    free = f"with data for free, training would be at most {most}"
    return f"The loader is at the ceiling: {free}."


def would_not_help(facts: Facts, advice: list[Advice]) -> list[str]:
    """Sentences on well-known advice that is not given here, and why."""
    if not facts.phases:
        return []
    sentences = []
    advised = {line.name for line in advice}
    waits = facts.phases.share(DATA)
    if facts.loader and "workers" not in advised and waits < LITTLE_DATA:
        sentences.append(f"More workers: waiting for data takes {waits:.1%} of a step (01/4).")
    optimizer = facts.phases.share(OPTIMIZER)
    if optimizer < LITTLE_OPTIMIZER:
        takes = f"the optimizer takes {optimizer:.1%} of a step"
        sentences.append(f"Another optimizer kernel: {takes} (06/3).")
    for name, trial in facts.trials.by_name.items():
        rule = "workers" if name.startswith(NUM_WORKERS) else RULE_OF_TRIAL.get(name, name)
        is_advised = rule in advised and trial.helped
        if trial.was_measured and not is_advised:
            why = f" {NOT_WORTH.get(name, LITTLE)}" if trial.helped else ""
            sentences.append(f"{name}: {trial.text}.{why}")
    return sentences


def not_seen(facts: Facts) -> list[str]:
    """Sentences on what the check-up could not see."""
    sentences = []
    for name, trial in facts.trials.by_name.items():
        if not trial.was_measured:
            sentences.append(f"{name}: {trial.text}.")
    for what, why in facts.failures.items():
        sentences.append(f"{what}: the look at it failed, {why}.")
    if facts.phases and not facts.optimizers.names:
        sentences.append("No optimizer of torch.optim stepped, so a step ends with each backward.")
    if not facts.loader:
        sentences.append("No DataLoader: how data are made is part of the script's own code.")
    if not facts.evaluation.times:
        sentences.append("No evaluation in these steps: each forward pass belongs to training.")
    if facts.compiled:
        sentences.append("Inside compiled code: what autograd saves there.")
    return sentences

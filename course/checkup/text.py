"""The report as one screen of text."""

from collections.abc import Iterator

from course.checkup.advice import Advice, own_code
from course.checkup.advice.rule import BOUND, NO_GAIN, NO_GAIN_MAX, PREDICTED, TRIED
from course.checkup.explained import unexplained
from course.checkup.facts import Arithmetic, Facts
from course.checkup.formats import at_most, duration, size
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
from course.checkup.report import Report
from course.checkup.schedule import WARM_UP
from course.checkup.verdict import at_the_ceiling
from course.text import counted

GIGA = 1e9
BAR_WIDTH = 40  # characters
RARELY = 0.1  # per step: what is asked less often is not worth a line
CALLS_SHOWN = 4
SHAPES_SHOWN = 4
RANKS_SHOWN = 4  # of more, the two slowest and the two fastest
SEVERAL_BACKWARDS = 1.5  # per step: more is accumulation
COLOURS = {  # of a terminal
    DATA: 33,
    TRANSFER: 35,
    FORWARD: 32,
    BACKWARD: 36,
    OPTIMIZER: 34,
    COMMUNICATION: 31,
    EVALUATION: 33,
    CODE: 37,
}
NAMES = {CODE: "your code"}  # what a reader calls a phase, if not by its name
ITEM_NAMES = {
    "item": "__getitem__",
    "read": "read",
    "transform": "transform",
    "collate": "collate_fn",
}


def text(report: Report, coloured: bool = False) -> str:
    """The screen, with colours if asked."""
    facts = report.facts
    blocks = [
        _head(report),
        "\n".join(_phase_rows(facts, coloured)),
        "\n".join(f"  {row}" for row in _fact_rows(facts)),
        _advice_table(report, coloured),
        "\n".join(f"  {one.sentence}" for one in report.predictions.values()),
        _list("Looked at, and not advised", report.would_not_help),
        _list("Not seen", report.not_seen),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def brief(report: Report) -> str:
    """The head, the phases and the advice."""
    phases = "\n".join(_phase_rows(report.facts, coloured=False))
    blocks = [_head(report), phases, _advice_table(report, coloured=False)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def where(facts: Facts, phase: str) -> str:
    """Where a phase spends its time: "mostly before forward, at train.py:116"."""
    words = []
    if phase == CODE and facts.gaps:
        after = max(facts.gaps, key=facts.gaps.get)
        article = "the " if after == "next step" else ""
        words.append(f"mostly before {article}{after}")
    lines = facts.lines.get(phase, [])
    if lines:
        words.append(f"at {lines[0].line}")
    return ", ".join(words)


def _head(report: Report) -> str:
    facts = report.facts
    seconds = facts.seconds
    if facts.own_cost is None:
        cost = "not measured: too few steps"
    else:
        cost = f"{facts.own_cost:.1%} of the time, the last steps left out"
    spread = f"{duration(seconds.low)} to {duration(seconds.high)}"
    return (
        f"Check-up of {report.name}: {report.regime}\n"
        f"{facts.steps.watched} steps watched, {facts.steps.run} run in all; "
        f"{duration(seconds.median)} each ({spread}); {report.ending}. "
        f"Cost of watching: {cost}."
    )


def _phase_rows(facts: Facts, coloured: bool) -> Iterator[str]:
    for name, phase in facts.phases.items():
        bar = "█" * round(BAR_WIDTH * phase.share)
        if coloured:
            bar = f"\x1b[{COLOURS[name]}m{bar}\x1b[0m"
        share = f"{phase.share:6.1%} ({phase.low:.1%} to {phase.high:.1%})"
        at = where(facts, name) if name in (CODE, DATA) else ""
        yield f"  {NAMES.get(name, name):<14}{share:<26} {bar} {at}".rstrip()
    evaluation = facts.evaluation
    if evaluation.times:
        share = f"{evaluation.share:.1%} of all the time"
        what = "passes without gradients" if evaluation.in_train_mode else "evaluation"
        yield f"  {what}: {share}, in {evaluation.times} steps"
    if facts.rare.times:
        yield f"  your code, each {facts.rare.every} steps: {facts.rare.share:.1%} of all the time"


def _fact_rows(facts: Facts) -> Iterator[str]:
    yield from _data_rows(facts)
    yield from _model_rows(facts)
    calls = [call for call in facts.syncs + facts.collectives if call.per_step >= RARELY]
    for call in calls[:CALLS_SHOWN]:
        yield f"asks        {call.name} at {call.line}, {call.per_step:.3g} per step"
    if facts.skew:
        ranks = _seconds_of_ranks(facts.skew.seconds)
        yield f"ranks       without waiting for others, per step: {ranks}"
    if facts.padding:
        cells = f"{facts.padding.waste:.2f} cells per token"
        seen = counted(facts.padding.sequences, "sequence")
        yield f"padding     {cells}; {facts.padding.bucketed:.2f} if the {seen} seen were sorted"


def _data_rows(facts: Facts) -> Iterator[str]:
    loader = facts.loader
    if loader:
        yield (
            f"loader      {loader.dataset}, batch {loader.batch_size}, {loader.workers} workers, "
            f"pin_memory {loader.pin_memory}, persistent {loader.persistent}"
        )
        if loader.starts > 1:
            first = f"the first batch of each took {duration(loader.start_seconds)}"
            yield f"epochs      {loader.starts}, of {loader.steps_per_start:.0f} steps; {first}"
    items = facts.trials.items
    if items:
        shares = ", ".join(f"{ITEM_NAMES[name]} {part:.0%}" for name, part in items.shares.items())
        yield f"items       {duration(items.seconds)} each: {shares}"


def _model_rows(facts: Facts) -> Iterator[str]:
    models = ", ".join(f"{m.name}, {m.trained:,} trained, {m.dtype}" for m in facts.models)
    optimizers = ", ".join(facts.optimizers.names) or "none of torch.optim"
    yield f"model       {models or 'none was seen'}; optimizer {optimizers}"
    batch = facts.batch
    if batch:
        shapes = " ".join(str(shape) for shape in batch.shapes[:SHAPES_SHOWN])
        yield f"batch       {size(batch.bytes)}: {shapes}"
    memory = facts.memory
    saved = "not seen" if memory.activations is None else size(memory.activations)
    yield (
        f"memory      weights {size(memory.weights)}, gradients {size(memory.gradients)}, "
        f"optimizer {size(memory.optimizer)}, activations {saved}"
    )
    if memory.lines:
        lines = ", ".join(f"{share:.0%} at {line}" for line, share in memory.lines)
        yield f"saved       for backward: {lines}"
    if facts.trials.arithmetic:
        yield _arithmetic_row(facts, facts.trials.arithmetic)
    if facts.backwards > SEVERAL_BACKWARDS:
        yield f"backward    {facts.backwards:g} per step"


def _arithmetic_row(facts: Facts, arithmetic: Arithmetic) -> str:
    """What a step computes, as a share of what the device reaches."""
    achieved = arithmetic.flops / max(1e-12, facts.seconds.median)
    share = f"{achieved / arithmetic.peak:.0%} of the {arithmetic.peak / GIGA:,.0f} GFLOP/s"
    per_step = f"{arithmetic.flops / GIGA:.3g} GFLOP per step"
    row = f"arithmetic  {per_step}: {share} of a matrix product here"
    if facts.gpu_util is None:
        return row
    return f"{row} (MFU), while GPU-Util is {facts.gpu_util:.0%}"


def _seconds_of_ranks(seconds: list[float]) -> str:
    """The seconds of each rank, or of the slowest and the fastest of many."""
    order = sorted(range(len(seconds)), key=lambda rank: -seconds[rank])
    if len(order) > RANKS_SHOWN:
        order = [*order[:2], *order[-2:]]
    return ", ".join(f"rank {rank} {duration(seconds[rank])}" for rank in order)


def _advice_table(report: Report, coloured: bool) -> str:
    if not report.facts.phases:
        return (
            f"The first {WARM_UP} steps only warm up, so no step was timed. "
            f"Let the script train for {2 * WARM_UP}."
        )
    if not report.advice:
        largest = unexplained(report.facts)
        if largest:
            return f"Nothing to advise. {largest} {at_the_ceiling(report.facts)}".rstrip()
        if report.facts.trials.by_name:
            tried = ", and nothing that was tried is proven to be worth a change"
        else:
            tried = ". Nothing was tried"
        ceiling = at_the_ceiling(report.facts)
        return f"Nothing to advise: no fault was seen{tried}. {ceiling}".rstrip()
    rows = ["  advice | at most | here | part"]
    for number, advice in enumerate(report.advice, 1):
        first = f"{number}. {advice.text}"
        if coloured and number == 1:
            first = f"\x1b[1m{first}\x1b[0m"
        most = at_most(advice.bound) if advice.bound > NO_GAIN_MAX else "memory, or nothing"
        rows.append(f"  {first} | {most} | {_what_is_expected(advice)} | {advice.part}")
    return "\n".join(rows)


def _what_is_expected(advice: Advice) -> str:
    if advice.basis == TRIED:
        return advice.tried
    if advice.name == own_code.NAME:  # to look at a line gains nothing
        return "not tried"
    words = {
        PREDICTED: f"predicted {advice.gain:.2f}x",
        BOUND: "not tried: that is a bound",
        NO_GAIN: "not tried",
    }
    return words[advice.basis]


def _list(title: str, sentences: list[str]) -> str:
    if not sentences:
        return ""
    return "\n".join([f"{title}:", *(f"  - {sentence}" for sentence in sentences)])

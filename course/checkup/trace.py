"""The steps that were timed as a trace that Perfetto and chrome://tracing open."""

import json
from collections.abc import Sequence
from typing import Any

from course.checkup.phases import Step

MICROSECONDS = 1e6  # in a second
STEPS_ROW, PHASES_ROW = 1, 2


def trace(name: str, steps: Sequence[Step]) -> str:
    """JSON in Chrome's format: a row of steps, and below it one of their phases.

    Steps follow one another although others, which were not cut into phases, lie between them.

    Source: "Trace Event Format", events of the kinds X (complete) and M (metadata).
    """
    events = [_name_of_row(STEPS_ROW, f"{name}: steps"), _name_of_row(PHASES_ROW, "phases")]
    begin = 0.0
    for number, step in enumerate(steps):
        if not step.pieces:
            continue
        zero = step.pieces[0].start
        seconds = step.pieces[-1].end - zero
        events.append(_event(STEPS_ROW, f"step {number}", begin, seconds))
        for phase, start, end in step.pieces:
            events.append(_event(PHASES_ROW, phase, begin + start - zero, end - start))
        begin += seconds
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _event(row: int, name: str, begin: float, seconds: float) -> dict[str, Any]:
    times = {"ts": MICROSECONDS * begin, "dur": MICROSECONDS * seconds}
    return {"name": name, "ph": "X", "pid": 1, "tid": row, **times}


def _name_of_row(row: int, name: str) -> dict[str, Any]:
    return {"name": "thread_name", "ph": "M", "pid": 1, "tid": row, "args": {"name": name}}

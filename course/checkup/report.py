"""What a check-up found, and its forms: a screen of text, JSON, a file of HTML.

Nothing is computed or run here: run.py does that.
"""

import importlib.metadata
import json
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from course.checkup.advice import Advice
from course.checkup.facts import Facts, as_data
from course.checkup.phases import Step
from course.checkup.predict import Prediction
from course.device import machine

SCHEMA = 1  # of `data`: rises when a key goes or changes its meaning, not when one is added


@dataclass(frozen=True)
class Report:
    """What a check-up found; str() is the screen."""

    name: str  # of the script
    ending: str  # how it ended
    facts: Facts
    predictions: dict[str, Prediction]
    advice: list[Advice]
    regime: str  # what holds the training back
    would_not_help: list[str]
    not_seen: list[str]
    timeline: list[Step] = field(default_factory=list)  # the first steps that were timed

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        from course.checkup.html import page  # which imports Report

        return page(self)

    @property
    def data(self) -> dict[str, Any]:
        """All numbers and sentences, under the keys of `--json`."""
        head = {
            "schema": SCHEMA,
            "version": importlib.metadata.version("scaling-pytorch-course"),
            "machine": machine(),
            "name": self.name,
            "ending": self.ending,
        }
        words = {
            "predictions": {name: one.values for name, one in self.predictions.items()},
            "predicted": [one.sentence for one in self.predictions.values()],
            "advice": [asdict(one) | {"basis": one.basis} for one in self.advice],
            "regime": self.regime,
            "would_not_help": self.would_not_help,
            "not_seen": self.not_seen,
            "gaps": self.facts.gaps,
        }
        return head | as_data(self.facts) | words

    def text(self, coloured: bool = False) -> str:
        """The screen, with colours if asked."""
        from course.checkup.text import text  # which imports Report

        return text(self, coloured)

    def brief(self) -> str:
        """The top of the screen: how long a step takes, its phases, and the advice."""
        from course.checkup.text import brief

        return brief(self)

    def json(self) -> str:
        """All of `data`, as JSON."""
        return json.dumps(self.data, indent=1, default=_plain)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else str(value)

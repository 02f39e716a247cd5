"""Known mistakes of exercise LossScaler, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "DividesTwice": (
        "Gradients are divided at every unscale_, so twice by two calls. Remember until update that it is done.",
        ("self.overflow is not None", "False"),
    ),
    "NewGradients": (
        "p.grad = p.grad / scale makes a new tensor; others still hold the scaled one. Divide in place: p.grad.div_.",
        (
            "for g in gradients:\n            g.div_(self.factor)",
            "for p in params:\n            p.grad = None if p.grad is None else p.grad / self.factor",
        ),
    ),
    "CountGoesOn": (
        "A bad step does not reset the count of good ones, so the scale grows too early. Count good steps in a row.",
        ("self.good_steps = 0\n        elif", "self.good_steps -= 1\n        elif"),
    ),
    "LastGradientDecides": (
        "The note about overflow is overwritten by each gradient: the last one decides. Once True, it must stay True.",
        ("for g in gradients)", "for g in gradients[-1:])"),
    ),
    "FirstGroupOnly": (
        "Only the first parameter group is unscaled. An optimizer may have several: loop over optimizer.param_groups.",
        ("optimizer.param_groups for", "optimizer.param_groups[:1] for"),
    ),
    "OnlyInf": (
        "Only inf is searched for. A nan is an overflow as well (inf - inf): use isfinite.",
        ("not all(g.isfinite().all()", "any(g.isinf().any()"),
    ),
    "LooksTooLate": (
        "inf is searched for in step, when clipping may have hidden it. Search in unscale_ and remember it.",
        ("gradients = [", "gradients = self.gradients = ["),
        (
            "self.unscale_(optimizer)\n",
            "self.unscale_(optimizer)\n        self.overflow = not all(g.isfinite().all() for g in self.gradients)\n",
        ),
    ),
    "StepsAnyway": (
        "The optimizer steps although a gradient is inf or nan, and the weights are lost. Skip the step.",
        ("if not self.overflow", "if True"),
    ),
    "GrowsOnce": (
        "The count continues after the scale has grown, so it grows only once. Reset it to 0 there too.",
        ("self.growth\n            self.good_steps = 0", "self.growth"),
    ),
    "GrowsAtEveryStep": (
        "The count continues after the scale has grown, and >= lets it grow at every step. Reset it to 0 there too.",
        ("== self.growth_interval", ">= self.growth_interval"),
        ("self.growth\n            self.good_steps = 0", "self.growth"),
    ),
    "NeverBelowOne": (
        "The scale stays at 1 or above. Multiply it by backoff after every overflow: a scale below 1 is allowed.",
        ("self.factor *= self.backoff", "self.factor = max(1.0, self.factor * self.backoff)"),
    ),
    "StopsAtTheFirstBad": (
        "Gradients behind the first inf or nan stay scaled. Divide all of them, and then look.",
        (
            "            g.div_(",
            "            if not g.isfinite().all():\n                break\n            g.div_(",
        ),
    ),
    "GrowsOneStepLate": (
        "The scale grows one good step too late. It grows when the count is growth_interval: ==, not >.",
        ("== self.growth_interval", "> self.growth_interval"),
    ),
}


@alternative
class StrictScaler:
    """Refuses a second unscale_, as torch does."""

    def __init__(self, init_scale=2.0**16, growth=2.0, backoff=0.5, growth_interval=2000):
        self._scale, self._growth, self._backoff, self._interval = (
            init_scale,
            growth,
            backoff,
            growth_interval,
        )
        self._row, self._found = 0, []

    def scale(self, loss):
        return self._scale * loss

    def unscale_(self, optimizer):
        if self._found:
            raise RuntimeError("unscale_() has already been called since the last update().")
        self._found = [False]
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.grad *= 1 / self._scale
                self._found.append(not torch.isfinite(p.grad).all().item())

    def step(self, optimizer):
        if not self._found:
            self.unscale_(optimizer)
        if any(self._found):
            return False
        optimizer.step()
        return True

    def update(self):
        if any(self._found):
            self._scale, self._row = self._scale * self._backoff, 0
        else:
            self._row += 1
            if self._row % self._interval == 0:
                self._scale *= self._growth
        self._found = []


@alternative
class TensorScaler:
    """The scale lies in a tensor; infinities are found by one sum; the results are written into the gradients."""

    def __init__(self, init_scale=2.0**16, growth=2.0, backoff=0.5, growth_interval=2000):
        self.size = torch.tensor(float(init_scale))
        self.growth, self.backoff, self.left, self.growth_interval = (
            growth,
            backoff,
            growth_interval,
            growth_interval,
        )
        self.unscaled, self.ok = False, True

    def scale(self, loss):
        return loss * self.size.to(loss.device)

    def unscale_(self, optimizer):
        if self.unscaled:
            return
        self.unscaled = True
        total = 0.0
        for p in (
            p for group in optimizer.param_groups for p in group["params"] if p.grad is not None
        ):
            torch.div(p.grad, self.size.to(p.device), out=p.grad)
            total += float((p.grad * 0).sum())  # 0, or nan if a value is inf or nan
        self.ok = total == 0

    def step(self, optimizer):
        if not self.unscaled:
            self.unscale_(optimizer)
        if self.ok:
            optimizer.step()
        return self.ok

    def update(self):
        self.left = self.left - 1 if self.ok else self.growth_interval
        if not self.ok:
            self.size = self.size * self.backoff
        elif self.left == 0:
            self.size, self.left = self.size * self.growth, self.growth_interval
        self.unscaled, self.ok = False, True

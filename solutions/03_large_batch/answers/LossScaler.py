"""Known mistakes of exercise LossScaler, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


class _Scaler:
    """A right scaler in pieces, so that each mistake can spoil one of them."""

    def __init__(self, init_scale=2.0**16, growth=2.0, backoff=0.5, growth_interval=2000):
        self.value, self.growth, self.backoff, self.interval = init_scale, growth, backoff, growth_interval
        self.good, self.done, self.bad = 0, False, False

    def scale(self, loss):
        return loss * self.value

    def gradients(self, optimizer):
        return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]

    def overflow(self, gradients):
        return not all(g.isfinite().all() for g in gradients)

    def unscale_(self, optimizer):
        if not self.done:
            gradients = self.gradients(optimizer)
            for g in gradients:
                g.div_(self.value)
            self.done, self.bad = True, self.overflow(gradients)

    def step(self, optimizer):
        self.unscale_(optimizer)
        if not self.bad:
            optimizer.step()
        return not self.bad

    def after_bad(self):
        self.value *= self.backoff
        self.good = 0

    def after_good(self):
        self.good += 1
        if self.good == self.interval:
            self.value *= self.growth
            self.good = 0

    def update(self):
        self.after_bad() if self.bad else self.after_good()
        self.done = self.bad = False


@mistake(
    "LossScaler",
    "Gradients are divided at every unscale_, so the second call divides again. Remember until update that it is done.",
)
class DividesTwice(_Scaler):
    def unscale_(self, optimizer):
        self.done = False
        super().unscale_(optimizer)


@mistake(
    "LossScaler",
    "p.grad = p.grad / scale makes a new tensor, and others still hold the scaled one. Divide in place: p.grad.div_.",
)
class NewGradients(_Scaler):
    def unscale_(self, optimizer):
        if not self.done:
            for p in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
                p.grad = p.grad / self.value
            self.done, self.bad = True, self.overflow(self.gradients(optimizer))


@mistake(
    "LossScaler",
    "A bad step does not reset the count of good ones, so the scale grows too early. Count good steps in a row.",
)
class CountGoesOn(_Scaler):
    def after_bad(self):
        self.value *= self.backoff


@mistake(
    "LossScaler",
    "The note about overflow is overwritten by each gradient, so the last one decides. Once True, it must stay True.",
)
class LastGradientDecides(_Scaler):
    def overflow(self, gradients):
        bad = False
        for g in gradients:
            bad = not g.isfinite().all()
        return bool(bad)


@mistake(
    "LossScaler",
    "Only the first parameter group is unscaled. An optimizer may have several: loop over optimizer.param_groups.",
)
class FirstGroupOnly(_Scaler):
    def gradients(self, optimizer):
        return [p.grad for p in optimizer.param_groups[0]["params"] if p.grad is not None]


@mistake("LossScaler", "Only inf is searched for. A nan is an overflow as well (inf - inf): use isfinite.")
class OnlyInf(_Scaler):
    def overflow(self, gradients):
        return any(g.isinf().any() for g in gradients)


@mistake(
    "LossScaler",
    "inf is searched for in step, when clipping may have hidden it. Search in unscale_ and remember it.",
)
class LooksTooLate(_Scaler):
    def step(self, optimizer):
        self.unscale_(optimizer)
        self.bad = self.overflow(self.gradients(optimizer))
        return super().step(optimizer)


@mistake(
    "LossScaler", "The optimizer steps although a gradient is inf or nan, and the weights are lost. Skip the step."
)
class StepsAnyway(_Scaler):
    def step(self, optimizer):
        self.unscale_(optimizer)
        optimizer.step()
        return not self.bad


@mistake("LossScaler", "The count continues after the scale has grown, so it grows only once. Reset it to 0 there too.")
class GrowsOnce(_Scaler):
    def after_good(self):
        self.good += 1
        if self.good == self.interval:
            self.value *= self.growth


@alternative("LossScaler")
class StrictScaler:
    """Refuses a second unscale_, as torch does."""

    def __init__(self, init_scale=2.0**16, growth=2.0, backoff=0.5, growth_interval=2000):
        self._scale, self._growth, self._backoff, self._interval = init_scale, growth, backoff, growth_interval
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


@alternative("LossScaler")
class TensorScaler:
    """The scale lies in a tensor; infinities are found by one sum; the results are written into the gradients."""

    def __init__(self, init_scale=2.0**16, growth=2.0, backoff=0.5, growth_interval=2000):
        self.size = torch.tensor(float(init_scale))
        self.growth, self.backoff, self.left, self.growth_interval = growth, backoff, growth_interval, growth_interval
        self.unscaled, self.ok = False, True

    def scale(self, loss):
        return loss * self.size.to(loss.device)

    def unscale_(self, optimizer):
        if self.unscaled:
            return
        self.unscaled = True
        total = 0.0
        for p in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
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

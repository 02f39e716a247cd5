"""Known mistakes of exercise lr_range_test, and right answers in other styles."""

import copy
import itertools
import math

import numpy as np

from course.checks.engine import alternative, mistake


class _Test:
    """The range test in pieces, so that each mistake can spoil one of them."""

    def __init__(self, model, optimizer, lowest, highest, steps, smoothing, stop):
        self.model, self.optimizer, self.smoothing, self.stop = model, optimizer, smoothing, stop
        self.lowest, self.highest, self.steps, self.average = lowest, highest, steps, 0.0

    def lr(self, step):
        return self.lowest * (self.highest / self.lowest) ** (step / (self.steps - 1))

    def set(self, lr):
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def clear(self):
        self.optimizer.zero_grad()

    def smooth(self, loss, step):
        self.average = self.smoothing * self.average + (1 - self.smoothing) * loss
        return self.average / (1 - self.smoothing ** (step + 1))

    def diverged(self, loss, smoothed, losses):
        return not math.isfinite(smoothed) or bool(losses) and smoothed > self.stop * min(losses)

    def save(self):
        return copy.deepcopy([self.model.state_dict(), self.optimizer.state_dict()])

    def restore(self, saved):
        self.model.load_state_dict(saved[0])
        self.optimizer.load_state_dict(saved[1])

    def run(self, batches, loss_fn):
        saved, lrs, losses = self.save(), [], []
        for step in range(self.steps):
            inputs, labels = next(batches)
            self.set(self.lr(step))
            self.clear()
            loss = loss_fn(self.model(inputs), labels)
            smoothed = self.smooth(loss.item(), step)
            if self.diverged(loss.item(), smoothed, losses):
                break
            lrs.append(self.lr(step))
            losses.append(smoothed)
            loss.backward()
            self.optimizer.step()
        self.restore(saved)
        return lrs, losses


def _wrong(advice):
    """A decorator: a class of tests -> a known mistake with the same name."""

    def mark(kind):
        def answer(model, optimizer, batches, loss_fn, lowest=1e-3, highest=10.0, steps=100, smoothing=0.9, stop=4.0):
            return kind(model, optimizer, lowest, highest, steps, smoothing, stop).run(batches, loss_fn)

        answer.__name__ = kind.__name__
        return mistake("lr_range_test", advice)(answer)

    return mark


@_wrong("The learning rate grows by equal amounts, so nearly all steps test large ones. Multiply by equal factors.")
class equal_amounts(_Test):
    def lr(self, step):
        return self.lowest + (self.highest - self.lowest) * step / (self.steps - 1)


@_wrong("The exponent is step / steps, so the last step stays below `highest`. Divide by steps - 1.")
class never_reaches_highest(_Test):
    def lr(self, step):
        return self.lowest * (self.highest / self.lowest) ** (step / self.steps)


@_wrong("Only the first parameter group gets the learning rate. Go through all of optimizer.param_groups.")
class first_group_alone(_Test):
    def set(self, lr):
        self.optimizer.param_groups[0]["lr"] = lr


@_wrong("Gradients of earlier steps add up. Clear them with optimizer.zero_grad() before each backward.")
class gradients_pile_up(_Test):
    def clear(self):
        pass


@_wrong("The average starts at 0 and pulls the first losses down. Divide by 1 - smoothing ** (step + 1).")
class no_bias_correction(_Test):
    def smooth(self, loss, step):
        self.average = self.smoothing * self.average + (1 - self.smoothing) * loss
        return self.average


@_wrong("The exponent of the correction is one too small: in step 0 it divides by zero. Take step + 1.")
class correction_one_late(_Test):
    def smooth(self, loss, step):
        self.average = self.smoothing * self.average + (1 - self.smoothing) * loss
        return self.average / (1 - self.smoothing**step)


@_wrong("The old average and the new loss have changed places: `smoothing` is the weight of the old average.")
class weights_swapped(_Test):
    def smooth(self, loss, step):
        self.average = (1 - self.smoothing) * self.average + self.smoothing * loss
        return self.average / (1 - (1 - self.smoothing) ** (step + 1))


@_wrong("The losses are not smoothed. Keep a running average and return its corrected values.")
class raw_losses(_Test):
    def smooth(self, loss, step):
        return loss


@_wrong("The first loss starts the average. Start it at 0 and divide by 1 - smoothing ** (step + 1) instead.")
class starts_with_the_first_loss(_Test):
    def smooth(self, loss, step):
        self.average = loss if step == 0 else self.smoothing * self.average + (1 - self.smoothing) * loss
        return self.average


@_wrong("The test never stops early. Break when the smoothed loss is not finite or above stop times the lowest.")
class never_stops(_Test):
    def diverged(self, loss, smoothed, losses):
        return False


@_wrong("A comparison with NaN is false, so NaN does not stop the test. Ask math.isfinite first.")
class misses_nan(_Test):
    def diverged(self, loss, smoothed, losses):
        return bool(losses) and smoothed > self.stop * min(losses)


@_wrong("The loss of one batch decides when to stop, and one loud batch ends the test. Compare the smoothed loss.")
class stops_at_a_loud_batch(_Test):
    def diverged(self, loss, smoothed, losses):
        return not math.isfinite(loss) or bool(losses) and loss > self.stop * min(losses)


@_wrong("The loss is compared with the first one. Compare it with the lowest one so far.")
class compares_with_the_first(_Test):
    def diverged(self, loss, smoothed, losses):
        return not math.isfinite(smoothed) or bool(losses) and smoothed > self.stop * losses[0]


@_wrong("state_dict() returns the tensors themselves, which training changes. Copy them: copy.deepcopy(...).")
class saves_references(_Test):
    def save(self):
        return [self.model.state_dict(), self.optimizer.state_dict()]


@_wrong("Nothing is restored: the test leaves a model that has diverged. Save both state dicts, load them at the end.")
class nothing_restored(_Test):
    def restore(self, saved):
        pass


@_wrong("The optimizer is not restored: it keeps the momentum and the learning rate of the test. Load its state too.")
class optimizer_not_restored(_Test):
    def restore(self, saved):
        self.model.load_state_dict(saved[0])


@_wrong("The model keeps the weights of the test. `model = saved` changes a name; use model.load_state_dict(saved).")
class model_not_restored(_Test):
    def restore(self, saved):
        self.optimizer.load_state_dict(saved[1])


@_wrong("A new optimizer makes the steps. Use the one that was given, whose learning rates are to be tested.")
class own_optimizer(_Test):
    def run(self, batches, loss_fn):
        self.optimizer = type(self.optimizer)(self.model.parameters(), lr=self.lowest)
        return super().run(batches, loss_fn)


@_wrong("Parameters are restored, BatchNorm's statistics are not. model.state_dict() holds both.")
class statistics_not_restored(_Test):
    def restore(self, saved):
        names = {name for name, _ in self.model.named_parameters()}
        self.model.load_state_dict({k: v for k, v in saved[0].items() if k in names}, strict=False)
        self.optimizer.load_state_dict(saved[1])


@mistake("lr_range_test", "The loss that stops the test is recorded. Look whether to stop before you append.")
def records_the_last(model, optimizer, batches, loss_fn, lowest=1e-3, highest=10.0, steps=100, smoothing=0.9, stop=4.0):
    test = _Test(model, optimizer, lowest, highest, steps, smoothing, stop)
    saved, lrs, losses = test.save(), [], []
    for step in range(steps):
        inputs, labels = next(batches)
        test.set(test.lr(step))
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), labels)
        lrs.append(test.lr(step))
        losses.append(test.smooth(loss.item(), step))
        if test.diverged(loss.item(), losses[-1], losses[:-1]):
            break
        loss.backward()
        optimizer.step()
    test.restore(saved)
    return lrs, losses


@mistake("lr_range_test", "The step is made before the test looks whether to stop. Look first, then backward and step.")
def steps_before_it_stops(
    model, optimizer, batches, loss_fn, lowest=1e-3, highest=10.0, steps=100, smoothing=0.9, stop=4.0
):
    test = _Test(model, optimizer, lowest, highest, steps, smoothing, stop)
    saved, lrs, losses = test.save(), [], []
    for step in range(steps):
        inputs, labels = next(batches)
        test.set(test.lr(step))
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), labels)
        loss.backward()
        optimizer.step()
        smoothed = test.smooth(loss.item(), step)
        if test.diverged(loss.item(), smoothed, losses):
            break
        lrs.append(test.lr(step))
        losses.append(smoothed)
    test.restore(saved)
    return lrs, losses


@alternative("lr_range_test")
def multiplied(model, optimizer, batches, loss_fn, lowest=1e-3, highest=10.0, steps=100, smoothing=0.9, stop=4.0):
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    settings = copy.deepcopy(optimizer.state_dict())
    factor, lr = (highest / lowest) ** (1 / (steps - 1)), lowest
    found, average, share, best = [], 0.0, 1.0, math.inf
    try:
        for inputs, labels in itertools.islice(batches, steps):
            optimizer.param_groups[:] = [{**group, "lr": lr} for group in optimizer.param_groups]
            model.zero_grad(set_to_none=True)
            loss = loss_fn(model(inputs), labels)
            average += (1 - smoothing) * (loss.item() - average)
            share *= smoothing
            smoothed = average / (1 - share)
            if not smoothed <= min(stop * best, 1e300):
                break
            best = min(best, smoothed)
            found.append((lr, smoothed))
            loss.backward()
            optimizer.step()
            lr *= factor
    finally:
        model.load_state_dict(weights)
        optimizer.load_state_dict(settings)
    return [lr for lr, _ in found], [loss for _, loss in found]


@alternative("lr_range_test")
def on_a_grid(model, optimizer, batches, loss_fn, lowest=1e-3, highest=10.0, steps=100, smoothing=0.9, stop=4.0):
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    grid, raw, losses = np.geomspace(lowest, highest, steps).tolist(), [], []
    for lr in grid:
        x, y = next(batches)
        loss = loss_fn(model(x), y)
        raw.append(loss.detach().item())
        weights = [(1 - smoothing) * smoothing ** (len(raw) - 1 - i) for i in range(len(raw))]
        smoothed = sum(w * value for w, value in zip(weights, raw, strict=True)) / sum(weights)
        if math.isnan(smoothed) or math.isinf(smoothed) or smoothed > stop * min([smoothed, *losses]):
            break
        losses.append(smoothed)
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
    for thing, state in zip((model, optimizer), before, strict=True):
        thing.load_state_dict(state)
    return grid[: len(losses)], losses

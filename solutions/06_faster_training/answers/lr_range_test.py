"""Known mistakes of exercise lr_range_test, and right answers in other styles."""

import copy
import itertools
import math

import numpy as np

from course.engine.known_answers import alternative

MISTAKES = {
    "equal_amounts": (
        "The learning rate grows by equal amounts, so nearly all steps test large ones. Multiply by equal factors.",
        ("lowest * (highest / lowest) ** (step", "lowest + (highest - lowest) * (step"),
    ),
    "never_reaches_highest": (
        "The exponent is step / steps, so the last step stays below `highest`. Divide by steps - 1.",
        ("(steps - 1)", "steps"),
    ),
    "first_group_alone": (
        "Only the first parameter group gets the learning rate. Go through all of optimizer.param_groups.",
        ("in optimizer.param_groups", "in optimizer.param_groups[:1]"),
    ),
    "gradients_pile_up": (
        "Gradients of earlier steps add up. Clear them with optimizer.zero_grad() before each backward.",
        ("optimizer.zero_grad()", ""),
    ),
    "no_bias_correction": (
        "The average starts at 0 and pulls the first losses down. Divide by 1 - smoothing ** (step + 1).",
        (" / (1 - smoothing ** (step + 1))", ""),
    ),
    "correction_one_late": (
        "The exponent of the correction is one too small: in step 0 it divides by zero. Take step + 1.",
        ("(step + 1)", "step"),
    ),
    "weights_swapped": (
        "The old average and the new loss are swapped. `smoothing` is the weight of the old average.",
        ("### BEGIN SOLUTION", "smoothing = 1 - smoothing"),
    ),
    "raw_losses": (
        "The losses are not smoothed. Keep a running average and return its corrected values.",
        ("average / (1 - smoothing ** (step + 1))", "loss.item()"),
    ),
    "notes_raw_losses": (
        "Smoothed losses stop the test, but raw ones are noted. Append the smoothed loss, and compare with the lowest "
        "of these.",
        ("losses.append(smoothed)", "losses.append(loss.item())"),
    ),
    "in_eval_mode": (
        "The model was put into eval mode, where BatchNorm uses its running statistics. Test it in the mode in which "
        "it trains.",
        ("### BEGIN SOLUTION", "model.eval()"),
    ),
    "starts_with_the_first_loss": (
        "The first loss starts the average. Start it at 0 and divide by 1 - smoothing ** (step + 1) instead.",
        ("average = smoothing", "average = loss.item() if step == 0 else smoothing"),
        (" / (1 - smoothing ** (step + 1))", ""),
    ),
    "never_stops": (
        "The test never stops early. Break when the smoothed loss is not finite or above stop times the lowest.",
        ("not math.isfinite(smoothed) or (losses and smoothed > stop * min(losses))", "False"),
    ),
    "misses_nan": (
        "A comparison with NaN is false, so NaN does not stop the test. Ask math.isfinite first.",
        ("not math.isfinite(smoothed) or ", ""),
    ),
    "stops_at_a_loud_batch": (
        "The loss of a single batch decides when to stop, so one outlier ends the test. Compare the smoothed loss.",
        ("isfinite(smoothed)", "isfinite(loss.item())"),
        ("smoothed > stop", "loss.item() > stop"),
    ),
    "compares_with_the_first": (
        "The loss is compared with the first one. Compare it with the lowest one so far.",
        ("min(losses)", "losses[0]"),
    ),
    "saves_references": (
        "state_dict() returns the tensors themselves, which training changes. Copy them: copy.deepcopy(...).",
        ("copy.deepcopy(model.state_dict())", "model.state_dict()"),
        ("copy.deepcopy(optimizer.state_dict())", "optimizer.state_dict()"),
    ),
    "momentum_by_reference": (
        "optimizer.state_dict() holds the momentum itself, which the test changes. Make a copy.deepcopy of it, as of "
        "the model's.",
        ("copy.deepcopy(optimizer.state_dict())", "optimizer.state_dict()"),
    ),
    "nothing_restored": (
        "Nothing is restored: the test leaves a model that has diverged. Save both state dicts, load them at the end.",
        ("model.load_state_dict(saved_model)", ""),
        ("optimizer.load_state_dict(saved_optimizer)", ""),
    ),
    "optimizer_not_restored": (
        "The optimizer is not restored: it keeps the momentum and the learning rate of the test. Load its state too.",
        ("optimizer.load_state_dict(saved_optimizer)", ""),
    ),
    "model_not_restored": (
        "The model keeps the weights of the test. `model = saved` changes a name; use model.load_state_dict(saved).",
        ("model.load_state_dict(saved_model)", "model = saved_model"),
    ),
    "own_optimizer": (
        "A new optimizer makes the steps. Use the given one, because the test is about its learning rates.",
        ("### BEGIN SOLUTION", "optimizer = type(optimizer)(model.parameters(), lr=lowest)"),
    ),
    "statistics_not_restored": (
        "Parameters are restored, BatchNorm's statistics are not. model.state_dict() holds both.",
        (
            "dict(saved_model)",
            "dict({name: saved_model[name] for name, _ in model.named_parameters()}, strict=False)",
        ),
    ),
    "records_the_last": (
        "The loss that stops the test is recorded. Check whether to stop before you append.",
        (
            "            break",
            "            lrs.append(lr)\n            losses.append(smoothed)\n            break",
        ),
    ),
    "steps_before_it_stops": (
        "The step comes before the check whether to stop. Check first, then call backward and step.",
        ("        loss.backward()\n        optimizer.step()\n", ""),
        (
            "        average =",
            "        loss.backward()\n        optimizer.step()\n        average =",
        ),
    ),
}


@alternative
def multiplied(
    model,
    optimizer,
    batches,
    loss_fn,
    lowest=1e-3,
    highest=10.0,
    steps=100,
    smoothing=0.9,
    stop=4.0,
):
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


@alternative
def on_a_grid(
    model,
    optimizer,
    batches,
    loss_fn,
    lowest=1e-3,
    highest=10.0,
    steps=100,
    smoothing=0.9,
    stop=4.0,
):
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    grid, raw, losses = np.geomspace(lowest, highest, steps).tolist(), [], []
    for lr in grid:
        x, y = next(batches)
        loss = loss_fn(model(x), y)
        raw.append(loss.detach().item())
        weights = [(1 - smoothing) * smoothing ** (len(raw) - 1 - i) for i in range(len(raw))]
        smoothed = sum(w * value for w, value in zip(weights, raw, strict=True)) / sum(weights)
        if (
            math.isnan(smoothed)
            or math.isinf(smoothed)
            or smoothed > stop * min([smoothed, *losses])
        ):
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

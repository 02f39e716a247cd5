"""Known mistakes of exercise amp_step, and right answers in other styles."""

import torch
from torch.nn import functional as F

from course.checks.engine import alternative, mistake


def _loss(logits, labels):
    return F.binary_cross_entropy_with_logits(logits, labels)


def _logits(model, users, items, labels, dtype):
    with torch.amp.autocast(labels.device.type, dtype=dtype):
        return model(users, items).float()


def _update(loss, optimizer, scaler):
    if scaler is None:
        loss.backward()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return loss.detach()


@mistake(
    "amp_step",
    "The forward pass runs in fp32: no autocast, or one for another kind of device. Use autocast(labels.device.type).",
)
def without_autocast(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    optimizer.zero_grad()
    return _update(_loss(model(users, items), labels), optimizer, scaler)


@mistake("amp_step", "Autocast runs in another 16-bit type than `dtype`. Pass it on: autocast(kind, dtype=dtype).")
def always_half(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    optimizer.zero_grad()
    return _update(_loss(_logits(model, users, items, labels, torch.float16), labels), optimizer, scaler)


@mistake("amp_step", "The model always runs in bf16, also where fp16 is asked for. Pass `dtype` to autocast.")
def always_bf16(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    optimizer.zero_grad()
    return _update(_loss(_logits(model, users, items, labels, torch.bfloat16), labels), optimizer, scaler)


@mistake("amp_step", "The scaler, not `dtype`, decides on the 16-bit type. Pass `dtype` to autocast in both cases.")
def type_by_the_scaler(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    optimizer.zero_grad()
    dtype = torch.float16 if scaler else torch.bfloat16
    return _update(_loss(_logits(model, users, items, labels, dtype), labels), optimizer, scaler)


@mistake(
    "amp_step",
    "The backward pass runs under autocast too. It uses the forward pass's types by itself: put it after the block.",
)
def backward_inside(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    optimizer.zero_grad()
    with torch.amp.autocast(labels.device.type, dtype=dtype):
        return _update(_loss(model(users, items).float(), labels), optimizer, scaler)


@mistake("amp_step", "backward() is called on the loss itself, so nothing is scaled. Call it on scaler.scale(loss).")
def unscaled_backward(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    optimizer.zero_grad()
    loss = _loss(_logits(model, users, items, labels, dtype), labels)
    if scaler is None:
        return _update(loss, optimizer, None)
    scaler.scale(loss)
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@mistake(
    "amp_step",
    "optimizer.step() uses scaled gradients and steps even on inf. Call scaler.step(optimizer) instead.",
)
def steps_by_itself(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    optimizer.zero_grad()
    loss = _loss(_logits(model, users, items, labels, dtype), labels)
    (loss if scaler is None else scaler.scale(loss)).backward()
    optimizer.step()
    return loss.detach()


@mistake(
    "amp_step",
    "The scaler is not used, so small gradients vanish in fp16. It has a call for backward, for step and for update.",
)
def scaler_not_used(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    optimizer.zero_grad()
    return _update(_loss(_logits(model, users, items, labels, dtype), labels), optimizer, None)


@mistake(
    "amp_step",
    "Old gradients are not cleared and add to the new ones. Call optimizer.zero_grad() before the backward pass.",
)
def old_gradients(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    return _update(_loss(_logits(model, users, items, labels, dtype), labels), optimizer, scaler)


@mistake("amp_step", "The scaled loss is returned. Scale only what backward() is called on.")
def returns_scaled(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    optimizer.zero_grad()
    loss = _loss(_logits(model, users, items, labels, dtype), labels)
    if scaler is None:
        return _update(loss, optimizer, None)
    loss = scaler.scale(loss)
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@mistake(
    "amp_step",
    "The scaler is never updated, so its scale never changes. Call scaler.update() at the end of each step.",
)
def never_updated(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    optimizer.zero_grad()
    loss = _loss(_logits(model, users, items, labels, dtype), labels)
    if scaler is None:
        return _update(loss, optimizer, None)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    return loss.detach()


@mistake(
    "amp_step",
    "Gradients are cleared after the step only, so what an earlier batch left counts. Clear them before backward().",
)
def cleared_afterwards(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    loss = _update(_loss(_logits(model, users, items, labels, dtype), labels), optimizer, scaler)
    optimizer.zero_grad()
    return loss


@mistake("amp_step", "With a scaler, optimizer.step() is called after scaler.step(), which is a second step. Drop it.")
def steps_twice(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    optimizer.zero_grad()
    loss = _update(_loss(_logits(model, users, items, labels, dtype), labels), optimizer, scaler)
    if scaler is not None:
        optimizer.step()
    return loss


@alternative("amp_step")
def loss_inside(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    with torch.autocast(device_type=labels.device.type, dtype=dtype):
        loss = F.binary_cross_entropy_with_logits(model(users, items).float(), labels)
    optimizer.zero_grad(set_to_none=True)
    scaler = scaler or torch.amp.GradScaler(labels.device.type, enabled=False)  # passes everything through
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@alternative("amp_step")
def clear_by_hand(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    for parameter in model.parameters():
        parameter.grad = None
    context = torch.amp.autocast(labels.device.type, dtype, enabled=True)
    context.__enter__()
    try:
        logits = model(users, items)
    finally:
        context.__exit__(None, None, None)
    logits = logits.to(torch.float32)
    loss = (F.softplus(logits) - labels * logits).mean()
    if scaler is not None:
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return loss.clone()

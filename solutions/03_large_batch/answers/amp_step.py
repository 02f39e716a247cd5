"""Known mistakes of exercise amp_step, and right answers in other styles."""

import torch
from torch.nn import functional as F

from course.checks.engine import alternative, mistake


def _loss(logits, labels):
    return F.binary_cross_entropy_with_logits(logits, labels)


def _scaled_update(loss, optimizer, scaler):
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@mistake(
    "amp_step",
    "The forward pass runs in fp32: no autocast, or one for another kind of device. Use autocast(labels.device.type).",
)
def without_autocast(model, users, items, labels, optimizer, scaler):
    optimizer.zero_grad()
    return _scaled_update(_loss(model(users, items), labels), optimizer, scaler)


@mistake(
    "amp_step",
    "The backward pass runs under autocast too. It uses the forward pass's types by itself: put it after the block.",
)
def backward_inside(model, users, items, labels, optimizer, scaler):
    optimizer.zero_grad()
    with torch.amp.autocast(labels.device.type):
        return _scaled_update(_loss(model(users, items).float(), labels), optimizer, scaler)


@mistake("amp_step", "backward() is called on the loss itself, so nothing is scaled. Call it on scaler.scale(loss).")
def unscaled_backward(model, users, items, labels, optimizer, scaler):
    optimizer.zero_grad()
    with torch.amp.autocast(labels.device.type):
        logits = model(users, items)
    loss = _loss(logits.float(), labels)
    scaler.scale(loss)
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@mistake(
    "amp_step",
    "optimizer.step() uses scaled gradients and steps even on inf. Call scaler.step(optimizer) instead.",
)
def steps_by_itself(model, users, items, labels, optimizer, scaler):
    optimizer.zero_grad()
    with torch.amp.autocast(labels.device.type):
        logits = model(users, items)
    loss = _loss(logits.float(), labels)
    scaler.scale(loss).backward()
    optimizer.step()
    return loss.detach()


@mistake(
    "amp_step",
    "The scaler is not used, so small gradients vanish in fp16. It has a call for backward, for step and for update.",
)
def scaler_not_used(model, users, items, labels, optimizer, scaler):
    optimizer.zero_grad()
    with torch.amp.autocast(labels.device.type):
        logits = model(users, items)
    loss = _loss(logits.float(), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


@mistake(
    "amp_step",
    "Old gradients are not cleared and add to the new ones. Call optimizer.zero_grad() before the backward pass.",
)
def old_gradients(model, users, items, labels, optimizer, scaler):
    with torch.amp.autocast(labels.device.type):
        logits = model(users, items)
    return _scaled_update(_loss(logits.float(), labels), optimizer, scaler)


@mistake("amp_step", "The scaled loss is returned. Scale only what backward() is called on.")
def returns_scaled(model, users, items, labels, optimizer, scaler):
    optimizer.zero_grad()
    with torch.amp.autocast(labels.device.type):
        logits = model(users, items)
    loss = scaler.scale(_loss(logits.float(), labels))
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@mistake(
    "amp_step",
    "The scaler is never updated, so its scale never changes. Call scaler.update() at the end of each step.",
)
def never_updated(model, users, items, labels, optimizer, scaler):
    optimizer.zero_grad()
    with torch.amp.autocast(labels.device.type):
        logits = model(users, items)
    loss = _loss(logits.float(), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    return loss.detach()


@alternative("amp_step")
def loss_inside(model, users, items, labels, optimizer, scaler):
    kind = labels.device.type
    with torch.autocast(device_type=kind, dtype=torch.float16 if kind == "cuda" else torch.bfloat16):
        loss = F.binary_cross_entropy_with_logits(model(users, items).float(), labels)
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@alternative("amp_step")
def clear_by_hand(model, users, items, labels, optimizer, scaler):
    for parameter in model.parameters():
        parameter.grad = None
    context = torch.amp.autocast(labels.device.type, enabled=True)
    context.__enter__()
    try:
        logits = model(users, items)
    finally:
        context.__exit__(None, None, None)
    logits = logits.to(torch.float32)
    loss = (F.softplus(logits) - labels * logits).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    with torch.no_grad():
        return loss.clone()

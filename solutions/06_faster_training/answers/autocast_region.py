"""Known mistakes of exercise autocast_region, and right answers in other styles."""

import torch
from torch.nn import functional as F

from course.checks.engine import alternative, mistake


def _kind(scaler):
    return torch.bfloat16 if scaler is None else torch.float16


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
    "autocast_region",
    "The model runs in float32: no autocast, or one for another device (torch.cuda.amp.autocast knows CUDA only). "
    "Use torch.autocast(images.device.type, dtype=...).",
)
def without_autocast(model, images, labels, optimizer, scaler=None):
    optimizer.zero_grad()
    return _update(F.cross_entropy(model(images), labels), optimizer, scaler)


@mistake(
    "autocast_region",
    "The weights themselves were cast, so small updates are rounded away. Leave the model alone: autocast casts "
    "copies of the weights where an operation wants them.",
)
def casts_the_model(model, images, labels, optimizer, scaler=None):
    optimizer.zero_grad()
    model.to(_kind(scaler))
    return _update(F.cross_entropy(model(images.to(_kind(scaler))).float(), labels), optimizer, scaler)


@mistake(
    "autocast_region",
    "The backward pass runs inside autocast too. It takes the dtypes of the forward pass by itself: put it behind the "
    "block.",
)
def backward_inside(model, images, labels, optimizer, scaler=None):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=_kind(scaler)):
        loss = F.cross_entropy(model(images), labels)
        (loss if scaler is None else scaler.scale(loss)).backward()
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()
    return loss.detach()


@mistake(
    "autocast_region",
    "Everything is inside autocast, the backward pass and the update too. Only the forward pass and the loss belong "
    "there.",
)
def everything_inside(model, images, labels, optimizer, scaler=None):
    with torch.autocast(images.device.type, dtype=_kind(scaler)):
        optimizer.zero_grad()
        return _update(F.cross_entropy(model(images), labels), optimizer, scaler)


@mistake(
    "autocast_region",
    "The optimizer steps inside autocast. An update wants all its digits: put it behind the block.",
)
def step_inside(model, images, labels, optimizer, scaler=None):
    kind = images.device.type
    optimizer.zero_grad()
    with torch.autocast(kind, dtype=_kind(scaler)):
        loss = F.cross_entropy(model(images), labels)
    if scaler is None:
        loss.backward()
    else:
        scaler.scale(loss).backward()
    with torch.autocast(kind, dtype=_kind(scaler)):
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
    return loss.detach()


@mistake(
    "autocast_region",
    "The loss is computed from 16-bit logits outside autocast, so it is itself of 16 bits. Inside the block "
    "cross_entropy computes in float32.",
)
def loss_outside(model, images, labels, optimizer, scaler=None):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=_kind(scaler)):
        logits = model(images)
    return _update(F.cross_entropy(logits, labels), optimizer, scaler)


@mistake(
    "autocast_region",
    "The loss has 16 bits and was cast to float32 afterwards: its digits are lost by then. Cast the logits, or compute "
    "the loss inside the block.",
)
def loss_cast_late(model, images, labels, optimizer, scaler=None):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=_kind(scaler)):
        logits = model(images)
    return _update(F.cross_entropy(logits, labels).float(), optimizer, scaler)


@mistake(
    "autocast_region",
    "Gradients of the batch before add to those of this one. Call optimizer.zero_grad() before the backward pass.",
)
def old_gradients(model, images, labels, optimizer, scaler=None):
    with torch.autocast(images.device.type, dtype=_kind(scaler)):
        loss = F.cross_entropy(model(images), labels)
    return _update(loss, optimizer, scaler)


@mistake(
    "autocast_region",
    "Gradients were set to 0 and not to None, so momentum and weight decay move weights that the model did not use. "
    "zero_grad() sets to None by default.",
)
def zeros_them(model, images, labels, optimizer, scaler=None):
    optimizer.zero_grad(set_to_none=False)
    with torch.autocast(images.device.type, dtype=_kind(scaler)):
        loss = F.cross_entropy(model(images), labels)
    return _update(loss, optimizer, scaler)


@mistake(
    "autocast_region",
    "The gradients are cleared between the backward pass and the update, so the optimizer has none. Clear them before "
    "the backward pass.",
)
def cleared_too_late(model, images, labels, optimizer, scaler=None):
    with torch.autocast(images.device.type, dtype=_kind(scaler)):
        loss = F.cross_entropy(model(images), labels)
    if scaler is None:
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # notes that nothing overflowed
        optimizer.zero_grad()
        scaler.step(optimizer)
        scaler.update()
    return loss.detach()


@mistake("autocast_region", "The model computes in float16 also without a scaler. There bfloat16 is asked for.")
def always_float16(model, images, labels, optimizer, scaler=None):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=torch.float16):
        loss = F.cross_entropy(model(images), labels)
    return _update(loss, optimizer, scaler)


@mistake("autocast_region", "The model computes in bfloat16 also with a scaler. A scaler belongs to float16.")
def always_bfloat16(model, images, labels, optimizer, scaler=None):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=torch.bfloat16):
        loss = F.cross_entropy(model(images), labels)
    return _update(loss, optimizer, scaler)


@mistake(
    "autocast_region", "The scaler is not used, so small gradients vanish in float16. It has three calls per step."
)
def scaler_not_used(model, images, labels, optimizer, scaler=None):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=_kind(scaler)):
        loss = F.cross_entropy(model(images), labels)
    return _update(loss, optimizer, None)


@mistake(
    "autocast_region",
    "optimizer.step() takes scaled gradients, and steps even on inf. Call scaler.step(optimizer) in its place.",
)
def steps_by_itself(model, images, labels, optimizer, scaler=None):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=_kind(scaler)):
        loss = F.cross_entropy(model(images), labels)
    (loss if scaler is None else scaler.scale(loss)).backward()
    optimizer.step()
    return loss.detach()


@mistake(
    "autocast_region", "The scaler is never updated, so its scale stays. Call scaler.update() at the end of a step."
)
def never_updated(model, images, labels, optimizer, scaler=None):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=_kind(scaler)):
        loss = F.cross_entropy(model(images), labels)
    if scaler is None:
        loss.backward()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
    return loss.detach()


@mistake("autocast_region", "What is returned still has its graph, and keeps all activations alive. Detach it.")
def with_its_graph(model, images, labels, optimizer, scaler=None):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=_kind(scaler)):
        loss = F.cross_entropy(model(images), labels)
    _update(loss, optimizer, scaler)
    return loss


@mistake(
    "autocast_region",
    "A Python number is returned: .item() makes every step wait for the device. Return the tensor, detached.",
)
def as_a_number(model, images, labels, optimizer, scaler=None):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=_kind(scaler)):
        loss = F.cross_entropy(model(images), labels)
    return _update(loss, optimizer, scaler).item()


@mistake(
    "autocast_region",
    "The gradients are unscaled, and then optimizer.step() steps even if they overflowed. Call scaler.step(optimizer).",
)
def unscales_and_steps(model, images, labels, optimizer, scaler=None):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=_kind(scaler)):
        loss = F.cross_entropy(model(images), labels)
    if scaler is None:
        return _update(loss, optimizer, None)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    optimizer.step()
    scaler.update()
    return loss.detach()


@mistake("autocast_region", "The scaled loss is returned. Scale only what backward() is called on.")
def returns_scaled(model, images, labels, optimizer, scaler=None):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=_kind(scaler)):
        loss = F.cross_entropy(model(images), labels)
    if scaler is None:
        return _update(loss, optimizer, None)
    loss = scaler.scale(loss)
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@alternative("autocast_region")
def loss_from_float_logits(model, images, labels, optimizer, scaler=None):
    for parameter in model.parameters():
        parameter.grad = None
    with torch.amp.autocast(images.device.type, dtype=_kind(scaler)):
        logits = model(images)
    loss = F.cross_entropy(logits.float(), labels)
    if scaler is not None:
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()
    loss.backward()
    optimizer.step()
    return loss.detach()


@alternative("autocast_region")
def a_scaler_that_does_nothing(model, images, labels, optimizer, scaler=None):
    kind = images.device.type
    quiet = scaler or torch.amp.GradScaler(kind, enabled=False)
    with torch.autocast(device_type=kind, dtype=torch.float16 if scaler else torch.bfloat16):
        loss = torch.nn.CrossEntropyLoss()(model(images), labels)
    optimizer.zero_grad(set_to_none=True)
    quiet.scale(loss).backward()
    quiet.step(optimizer)
    quiet.update()
    return loss.detach().clone()

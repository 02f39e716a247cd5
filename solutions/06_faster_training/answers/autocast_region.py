"""Known mistakes of exercise autocast_region, and right answers in other styles."""

import torch
from torch.nn import functional as F

from course.engine.known_answers import alternative

INSIDE = "with torch.autocast(images.device.type, dtype=dtype):"
LOSS = "        loss = F.cross_entropy(model(images), labels)"
MISTAKES = {
    "without_autocast": (
        "The model runs in float32: no autocast, or one for another device (torch.cuda.amp.autocast knows CUDA only). "
        "Use torch.autocast(images.device.type, dtype=...).",
        (INSIDE, "if True:"),
    ),
    "casts_the_model": (
        "The weights themselves were cast, so small updates are rounded away. Leave the model alone: autocast casts "
        "copies of the weights where an operation needs them.",
        (INSIDE, "if model.to(dtype):"),
        ("model(images)", "model(images.to(dtype)).float()"),
    ),
    "backward_inside": (
        "The backward pass runs inside autocast too. It takes the dtypes of the forward pass by itself: put it behind "
        "the block.",
        ("        loss.backward", f"        {INSIDE} loss.backward"),
        ("        scaler.scale", f"        {INSIDE} scaler.scale"),
    ),
    "everything_inside": (
        "Everything is inside autocast, the backward pass and the update too. Only the forward pass and the loss "
        "belong there.",
        ("        loss.backward", f"        {INSIDE} loss.backward"),
        ("        scaler.scale", f"        {INSIDE} scaler.scale"),
        ("        optimizer.step", f"        {INSIDE} optimizer.step"),
        ("        scaler.step", f"        {INSIDE} scaler.step"),
    ),
    "step_inside": (
        "The optimizer steps inside autocast. An update needs all its digits. Put it after the block.",
        ("        optimizer.step", f"        {INSIDE} optimizer.step"),
        ("        scaler.step", f"        {INSIDE} scaler.step"),
    ),
    "loss_outside": (
        "The loss is computed from 16-bit logits outside autocast, so the loss has 16 bits, too. Compute it inside "
        "the block, where cross_entropy takes float32.",
        (LOSS, "        logits = model(images)\n    loss = F.cross_entropy(logits, labels)"),
    ),
    "loss_cast_late": (
        "The loss has 16 bits and was cast to float32 afterwards: its digits are lost by then. Cast the logits, or "
        "compute the loss inside the block.",
        (
            LOSS,
            "        logits = model(images)\n    loss = F.cross_entropy(logits, labels).float()",
        ),
    ),
    "old_gradients": (
        "The gradients of the batch before add to the gradients of this one. Call optimizer.zero_grad() before the "
        "backward pass.",
        ("optimizer.zero_grad()", ""),
    ),
    "zeros_them": (
        "Gradients were set to 0 and not to None, so momentum and weight decay move weights that the model did not "
        "use. zero_grad() sets to None by default.",
        ("zero_grad()", "zero_grad(set_to_none=False)"),
    ),
    "cleared_too_late": (
        "The gradients are cleared between the backward pass and the update, so the optimizer has none. Clear them "
        "before the backward pass.",
        ("optimizer.zero_grad()", ""),
        ("        optimizer.step", "        optimizer.zero_grad()\n        optimizer.step"),
        (
            "        scaler.step",
            "        scaler.unscale_(optimizer)\n        optimizer.zero_grad()\n        scaler.step",
        ),
    ),
    "always_float16": (
        "The model computes in float16 even without a scaler. Use bfloat16 there.",
        ("torch.bfloat16 if scaler is None else ", ""),
    ),
    "always_bfloat16": (
        "The model computes in bfloat16 even with a scaler. A scaler belongs to float16.",
        (" if scaler is None else torch.float16", ""),
    ),
    "scaler_not_used": (
        "The scaler is not used, so small gradients vanish in float16. It has three calls per step.",
        ("    if scaler is None", "    if True"),
    ),
    "steps_by_itself": (
        "optimizer.step() takes scaled gradients, and steps even on inf. Call scaler.step(optimizer) instead.",
        ("scaler.step(optimizer)\n        scaler.update()", "optimizer.step()"),
    ),
    "steps_by_itself_and_updates": (
        "The optimizer steps by itself, so scaler.update() finds no step of the scaler. With a scaler, call "
        "scaler.step(optimizer) instead of optimizer.step().",
        ("scaler.step(optimizer)", "optimizer.step()"),
    ),
    "a_new_scaler_each_step": (
        "A new scaler is made in each step, so its scale never adapts. Use the scaler that was given.",
        (
            "scaler.scale(loss)",
            "scaler = torch.amp.GradScaler(images.device.type)\n        scaler.scale(loss)",
        ),
    ),
    "never_updated": (
        "The scaler is never updated, so its next step raises an error. Call scaler.update() at the end of a step.",
        ("scaler.update()", ""),
    ),
    "with_its_graph": (
        "The loss that you return still has its graph, which keeps all activations alive. Detach it.",
        ("return loss.detach()", "return loss"),
    ),
    "as_a_number": (
        "A Python number is returned: .item() makes every step wait for the device. Return the tensor, detached.",
        ("return loss.detach()", "return loss.item()"),
    ),
    "unscales_and_steps": (
        "The gradients are unscaled, and then optimizer.step() steps even if they overflowed. Call "
        "scaler.step(optimizer).",
        ("scaler.step(optimizer)", "scaler.unscale_(optimizer)\n        optimizer.step()"),
    ),
    "returns_scaled": (
        "The scaled loss is returned. Scale only what backward() is called on.",
        ("scaler.scale(loss)", "loss = scaler.scale(loss)\n        loss"),
    ),
}


@alternative
def loss_from_float_logits(model, images, labels, optimizer, scaler=None):
    for parameter in model.parameters():
        parameter.grad = None
    with torch.amp.autocast(
        images.device.type, dtype=torch.bfloat16 if scaler is None else torch.float16
    ):
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


@alternative
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

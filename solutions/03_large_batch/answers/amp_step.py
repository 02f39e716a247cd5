"""Known mistakes of exercise amp_step, and right answers in other styles."""

import torch
from torch.nn import functional as F

from course.engine.known_answers import alternative

MISTAKES = {
    "without_autocast": (
        "The forward pass runs in fp32: no autocast, or one for another device. Use autocast(labels.device.type).",
        (".type, dtype", ".type, dtype, enabled=False"),
    ),
    "always_half": (
        "Autocast runs in another 16-bit type than `dtype`. Pass it on: autocast(kind, dtype=dtype).",
        (".type, dtype", ".type, torch.float16"),
    ),
    "always_bf16": (
        "The model always runs in bf16, also where fp16 is asked for. Pass `dtype` to autocast.",
        (".type, dtype", ".type, torch.bfloat16"),
    ),
    "type_by_the_scaler": (
        "The scaler, not `dtype`, decides on the 16-bit type. Pass `dtype` to autocast in both cases.",
        (".type, dtype", ".type, torch.float16 if scaler else torch.bfloat16"),
    ),
    "backward_inside": (
        "The backward pass runs under autocast too. It uses the forward pass's types anyway: put it after the block.",
        (
            "loss.backward()",
            "with torch.amp.autocast(labels.device.type, dtype):\n            loss.backward()",
        ),
        (
            "scaler.scale(loss)",
            "with torch.amp.autocast(labels.device.type, dtype):\n            scaler.scale(loss)",
        ),
    ),
    "unscaled_backward": (
        "backward() is called on the loss itself, so nothing is scaled. Call it on scaler.scale(loss).",
        ("scaler.scale(loss).backward()", "scaler.scale(loss)\n        loss.backward()"),
    ),
    "steps_by_itself": (
        "optimizer.step() uses scaled gradients and steps even on inf. Call scaler.step(optimizer) instead.",
        ("scaler.step(optimizer)\n        scaler.update()", "optimizer.step()"),
    ),
    "scaler_not_used": (
        "The scaler is not used, so small gradients vanish in fp16. It has a call for backward, step and update.",
        ("if scaler is None", "if True"),
    ),
    "old_gradients": (
        "Old gradients are not cleared and add to the new ones. Call optimizer.zero_grad() before the backward pass.",
        ("optimizer.zero_grad()", "pass"),
    ),
    "returns_scaled": (
        "The scaled loss is returned. Scale only what backward() is called on.",
        ("scaler.scale(loss).backward()", "loss = scaler.scale(loss)\n        loss.backward()"),
    ),
    "never_updated": (
        "The scaler is never updated, so its scale never changes. Call scaler.update() at the end of each step.",
        ("        scaler.update()\n", ""),
    ),
    "cleared_afterwards": (
        "Gradients are cleared after the step only, so those of an earlier batch count. Clear them before backward().",
        ("optimizer.zero_grad()", "pass"),
        ("    return", "    optimizer.zero_grad()\n    return"),
    ),
    "steps_twice": (
        "With a scaler, optimizer.step() is called after scaler.step(), which is a second step. Drop it.",
        ("scaler.step(optimizer)", "scaler.step(optimizer)\n        optimizer.step()"),
    ),
    "updated_before_the_step": (
        "scaler.update() finds no scaler.step() before it. Step with scaler.step(optimizer), then call update().",
        (
            "scaler.step(optimizer)\n        scaler.update()",
            "scaler.update()\n        scaler.step(optimizer)",
        ),
    ),
}


@alternative
def loss_inside(model, users, items, labels, optimizer, scaler=None, dtype=torch.bfloat16):
    with torch.autocast(device_type=labels.device.type, dtype=dtype):
        loss = F.binary_cross_entropy_with_logits(model(users, items).float(), labels)
    optimizer.zero_grad(set_to_none=True)
    scaler = scaler or torch.amp.GradScaler(
        labels.device.type, enabled=False
    )  # passes everything through
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@alternative
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

"""Known mistakes of exercise checkpoint, and right answers in other styles."""

import contextlib

import torch
from torch.autograd import Function

from course.engine.known_answers import alternative

GRADS = "grads = iter(torch.autograd.grad(out, wanted, grad, allow_unused=True))"
BACKWARD = (GRADS, "torch.autograd.backward(out, grad)")
MISTAKES = {
    "another_mask": (
        "The second run of the block draws another dropout mask, so the gradient is not that of the forward pass. Save "
        "the state of the random numbers in forward and set it before the block runs again.",
        ("torch.set_rng_state(ctx.states[0])", ""),
        ("torch.cuda.set_rng_state(state, gpu)", "pass"),
    ),
    "repeated_numbers": (
        "The mask is right, but after backward the program continues from the old random numbers, so later draws "
        "repeat earlier ones. Restore the state after the second run (torch.random.fork_rng does both).",
        ("torch.random.fork_rng(gpus), ", ""),
    ),
    "parameters_only_through_inputs": (
        "A block whose input needs no gradient trains nothing: its result requires no gradient, because autograd sees "
        "the inputs alone. Pass the parameters to apply as well, and return their gradients.",
        ("apply(*inputs, *parameters)", "apply(*inputs)"),
        BACKWARD,
        ("next(grads) if t.requires_grad else None for t in tensors", "x.grad for x in fresh"),
    ),
    "inputs_alone": (
        "The parameters get no gradient, because backward asks only for the gradients of the inputs. Pass the "
        "parameters to apply after the inputs, and return a gradient for each.",
        ("tuple(block.parameters())", "()"),
    ),
    "graph_is_kept": (
        "The first run of the block builds a graph, so everything inside it is kept and no memory is saved. Call it in "
        "the forward of an autograd.Function, where gradients are off, and leave them off.",
        (
            "            return block(*inputs)",
            "            with torch.enable_grad():\n"
            "                ctx.out = block(*inputs)\n"
            "            return ctx.out.detach()",
        ),
    ),
    "no_graph_in_backward": (
        "Inside backward gradients are off as well, so the second run builds no graph. Run it inside "
        "torch.enable_grad().",
        (", torch.enable_grad()", ""),
    ),
    "recomputed_in_float32": (
        "Under autocast the second run computes in float32, because backward runs outside the autocast of the forward "
        "pass. Save its state in forward, and enter torch.autocast with it before the block runs again.",
        (", torch.autocast(*ctx.cast)", ""),
    ),
    "always_autocast": (
        "The second run always uses autocast, even if the first one did not. Save in forward whether autocast "
        "was enabled, and pass it as `enabled`.",
        (
            "torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)",
            "torch.get_autocast_dtype(kind)",
        ),
    ),
    "counted_twice": (
        "The gradients of the parameters count twice: backward inside adds them to .grad, and what is returned is "
        "added once more. Ask torch.autograd.grad for them, which adds nothing.",
        BACKWARD,
        ("next(grads) if t.requires_grad else None", "t.grad"),
    ),
    "not_detached": (
        "Backward runs on from the block into what came before it, and then autograd goes there a second time. Detach "
        "the saved inputs before the block runs again.",
        ("x.detach().requires_grad_(need)", "x"),
        (
            "out = block",
            "[x.retain_grad() for x in fresh if x.requires_grad]\n                out = block",
        ),
        BACKWARD,
        ("next(grads) if t.requires_grad else None", "None if t.is_leaf else t.grad"),
    ),
}


def _states(x):
    kind = x.device.type
    casts = torch.autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
    return torch.get_rng_state(), torch.cuda.get_rng_state_all(), casts


@contextlib.contextmanager
def _as_in_forward(states):
    with torch.random.fork_rng(range(torch.cuda.device_count())), torch.enable_grad():
        torch.set_rng_state(states[0])
        torch.cuda.set_rng_state_all(states[1])
        with states[2]:
            yield


@alternative
def one_input_that_always_needs_a_gradient(block, *inputs):
    class Recompute(Function):
        @staticmethod
        def forward(ctx, switch, *tensors):
            ctx.save_for_backward(*tensors)
            ctx.states = _states(tensors[0])
            return block(*tensors)

        @staticmethod
        def backward(ctx, grad):
            needs = ctx.needs_input_grad[1:]
            fresh = [
                x.detach().requires_grad_(n) for x, n in zip(ctx.saved_tensors, needs, strict=True)
            ]
            with _as_in_forward(ctx.states):
                torch.autograd.backward(block(*fresh), grad)
            return None, *(x.grad for x in fresh)

    return Recompute.apply(torch.ones((), requires_grad=True), *inputs)


@alternative
def everything_through_ctx(block, *inputs):
    return _Everything.apply(block, len(inputs), *inputs, *block.parameters())


class _Everything(Function):
    @staticmethod
    def forward(ctx, block, n, *tensors):
        ctx.block, ctx.states, ctx.parameters = block, _states(tensors[0]), tensors[n:]
        ctx.save_for_backward(*tensors[:n])
        return block(*tensors[:n])

    @staticmethod
    def backward(ctx, grad):
        needs = ctx.needs_input_grad[2:]
        fresh = [
            x.detach().requires_grad_(n) for x, n in zip(ctx.saved_tensors, needs, strict=False)
        ]
        with _as_in_forward(ctx.states):
            out = ctx.block(*fresh)
        wanted = [t for t, need in zip((*fresh, *ctx.parameters), needs, strict=True) if need]
        grads = iter(torch.autograd.grad(out, wanted, grad, allow_unused=True))
        return None, None, *(next(grads) if need else None for need in needs)

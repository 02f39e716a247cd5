"""Known mistakes of exercise checkpoint, and right answers in other styles."""

import contextlib

import torch
from torch.autograd import Function

from course.checks.engine import alternative, mistake


def _states():
    return torch.get_rng_state(), torch.cuda.get_rng_state_all()


def _put(states):
    torch.set_rng_state(states[0])
    torch.cuda.set_rng_state_all(states[1])


@contextlib.contextmanager
def _drawing_from(states):
    now = _states()
    _put(states)
    yield
    _put(now)


def _apply(block, inputs, parameters, backward):
    """Run `block` without a graph; `backward(ctx, grad)` gives the gradients of the inputs and the parameters."""

    class Recompute(Function):
        @staticmethod
        def forward(ctx, *tensors):
            ctx.save_for_backward(*tensors[: len(inputs)])
            ctx.states = _states()
            return block(*tensors[: len(inputs)])

    Recompute.backward = staticmethod(backward)
    return Recompute.apply(*inputs, *parameters)


def _fresh(ctx):
    """The saved inputs as leaves of a graph of their own."""
    needs = ctx.needs_input_grad
    return [x.detach().requires_grad_(need) for x, need in zip(ctx.saved_tensors, needs, strict=False)]


def _gradients(block, parameters, saved, needs, grad):
    """Gradients of the inputs and the parameters, None for those that need none."""
    fresh = [x.detach().requires_grad_(need) for x, need in zip(saved, needs, strict=False)]
    with torch.enable_grad():
        out = block(*fresh)
    tensors = [*fresh, *parameters]
    wanted = [t for t in tensors if t.requires_grad]
    found = iter(torch.autograd.grad(out, wanted, grad, allow_unused=True))
    return tuple(next(found) if t.requires_grad else None for t in tensors)


@mistake(
    "checkpoint",
    "The second run of the block draws another dropout mask, so the gradient is not that of the forward pass. Save the "
    "state of the random numbers in forward and set it before the block runs again.",
)
def another_mask(block, *inputs):
    parameters = tuple(block.parameters())

    def backward(ctx, grad):
        now = _states()
        found = _gradients(block, parameters, ctx.saved_tensors, ctx.needs_input_grad, grad)
        _put(now)
        return found

    return _apply(block, inputs, parameters, backward)


@mistake(
    "checkpoint",
    "The mask is right, but after backward the program goes on from the old random numbers, so that later draws repeat "
    "earlier ones. Put the state of before back after the second run (torch.random.fork_rng does both).",
)
def repeated_numbers(block, *inputs):
    parameters = tuple(block.parameters())

    def backward(ctx, grad):
        _put(ctx.states)
        return _gradients(block, parameters, ctx.saved_tensors, ctx.needs_input_grad, grad)

    return _apply(block, inputs, parameters, backward)


@mistake(
    "checkpoint",
    "A block whose input needs no gradient trains nothing: its result requires no gradient, because autograd sees the "
    "inputs alone. Pass the parameters to apply as well, and return their gradients.",
)
def parameters_only_through_inputs(block, *inputs):
    def backward(ctx, grad):
        fresh = _fresh(ctx)
        with _drawing_from(ctx.states), torch.enable_grad():
            out = block(*fresh)
        out.backward(grad)
        return tuple(x.grad for x in fresh)

    return _apply(block, inputs, (), backward)


@mistake(
    "checkpoint",
    "The parameters get no gradient: only those of the inputs are asked for and returned. Pass the parameters to apply "
    "behind the inputs, and return a gradient for each.",
)
def inputs_alone(block, *inputs):
    def backward(ctx, grad):
        with _drawing_from(ctx.states):
            return _gradients(block, (), ctx.saved_tensors, ctx.needs_input_grad, grad)

    return _apply(block, inputs, (), backward)


@mistake(
    "checkpoint",
    "The first run of the block builds a graph, so everything inside it is kept and no memory is saved. Call it in the "
    "forward of an autograd.Function, where gradients are off, and leave them off.",
)
def graph_is_kept(block, *inputs):
    parameters = tuple(block.parameters())

    class Keep(Function):
        @staticmethod
        def forward(ctx, *tensors):
            ctx.fresh = [x.detach().requires_grad_(n) for x, n in zip(inputs, ctx.needs_input_grad, strict=False)]
            with torch.enable_grad():
                ctx.out = block(*ctx.fresh)
            return ctx.out.detach()

        @staticmethod
        def backward(ctx, grad):
            tensors = [*ctx.fresh, *parameters]
            wanted = [t for t in tensors if t.requires_grad]
            found = iter(torch.autograd.grad(ctx.out, wanted, grad, allow_unused=True))
            return tuple(next(found) if t.requires_grad else None for t in tensors)

    return Keep.apply(*inputs, *parameters)


@mistake(
    "checkpoint",
    "Inside backward gradients are off as well, so the second run builds no graph. Run it inside torch.enable_grad().",
)
def no_graph_in_backward(block, *inputs):
    parameters = tuple(block.parameters())

    def backward(ctx, grad):
        fresh = _fresh(ctx)
        with _drawing_from(ctx.states):
            out = block(*fresh)
        return torch.autograd.grad(out, [*fresh, *parameters], grad)

    return _apply(block, inputs, parameters, backward)


@mistake(
    "checkpoint",
    "The gradients of the parameters count twice: backward inside adds them to .grad, and what is returned is added "
    "once more. Ask torch.autograd.grad for them, which adds nothing.",
)
def counted_twice(block, *inputs):
    parameters = tuple(block.parameters())

    def backward(ctx, grad):
        fresh = _fresh(ctx)
        with _drawing_from(ctx.states), torch.enable_grad():
            block(*fresh).backward(grad)
        return *(x.grad for x in fresh), *(p.grad for p in parameters)

    return _apply(block, inputs, parameters, backward)


@mistake(
    "checkpoint",
    "Backward runs on from the block into what came before it, and then autograd goes there a second time. Detach the "
    "saved inputs before the block runs again.",
)
def not_detached(block, *inputs):
    parameters = tuple(block.parameters())

    def backward(ctx, grad):
        with _drawing_from(ctx.states), torch.enable_grad():
            out = block(*ctx.saved_tensors)
        needs = [x for x in ctx.saved_tensors if x.requires_grad]
        found = iter(torch.autograd.grad(out, needs, grad, retain_graph=True) if needs else ())
        own = [next(found) if x.requires_grad else None for x in ctx.saved_tensors]
        torch.autograd.backward(out, grad)
        leaves = (x.is_leaf for x in ctx.saved_tensors)
        return *(None if leaf else g for g, leaf in zip(own, leaves, strict=True)), *(None for _ in parameters)

    return _apply(block, inputs, parameters, backward)


@alternative("checkpoint")
def one_input_that_always_needs_a_gradient(block, *inputs):
    class Recompute(Function):
        @staticmethod
        def forward(ctx, switch, *tensors):
            ctx.save_for_backward(*tensors)
            ctx.states = _states()
            return block(*tensors)

        @staticmethod
        def backward(ctx, grad):
            needs = ctx.needs_input_grad[1:]
            fresh = [x.detach().requires_grad_(n) for x, n in zip(ctx.saved_tensors, needs, strict=True)]
            with _drawing_from(ctx.states), torch.enable_grad():
                torch.autograd.backward(block(*fresh), grad)
            return None, *(x.grad for x in fresh)

    return Recompute.apply(torch.ones((), requires_grad=True), *inputs)


@alternative("checkpoint")
def everything_through_ctx(block, *inputs):
    return _Everything.apply(block, len(inputs), *inputs, *block.parameters())


class _Everything(Function):
    @staticmethod
    def forward(ctx, block, n, *tensors):
        ctx.block, ctx.states, ctx.parameters = block, _states(), tensors[n:]
        ctx.save_for_backward(*tensors[:n])
        return block(*tensors[:n])

    @staticmethod
    def backward(ctx, grad):
        with _drawing_from(ctx.states):
            return None, None, *_gradients(ctx.block, ctx.parameters, ctx.saved_tensors, ctx.needs_input_grad[2:], grad)

"""What torch does in Python and must do otherwise on the pretended CUDA device (pretend_cuda.py).

Inference mode without its tensors, a profile without CUDA's events, parameters that stay tied when a module moves.
"""

import threading

import torch


class Inference:
    """What torch.inference_mode does on the way in and out, without its tensors: a wrapper and what it wraps would
    disagree about those.  Functions that were decorated before the pretence began are of the same class."""

    modes = threading.local()

    def enter(mode):
        vars(mode).setdefault("outer", []).append((torch.is_grad_enabled(), Inference.is_on()))
        torch.set_grad_enabled(not mode.mode and torch.is_grad_enabled())
        Inference.modes.on = mode.mode

    def leave(mode, *error):
        grad, Inference.modes.on = mode.outer.pop()
        torch.set_grad_enabled(grad)

    @staticmethod
    def is_on():
        return getattr(Inference.modes, "on", False)


def profile_of_the_cpu(make):
    """torch.profiler.profile without CUDA's events, for each of which C++ would say that it could not be recorded."""
    cpu = torch.profiler.ProfilerActivity.CPU

    def init(self, *, activities=None, **options):
        make(self, activities=[cpu] if activities is None or cpu in activities else [], **options)

    return init


def keeping_ties(apply):
    """nn.Module._apply, after which a tied parameter is still one.

    Where torch can set a parameter's `data`, as from the CPU to CUDA, it does; else it makes one for each name.
    """

    def call(module, fn, recurse=True):
        places = [(owner._parameters, key) for owner in module.modules() for key in owner._parameters]
        before, made = [parameters[key] for parameters, key in places], {}
        apply(module, fn, recurse)
        for (parameters, key), old in zip(places, before, strict=True):
            parameters[key] = made.setdefault(id(old), parameters[key])
        return module

    return call

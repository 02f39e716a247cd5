"""The grader's own tools, patched in the learner's process."""
# ruff: noqa: F821, F841, B018

from hostile.attack import cell


@cell(at="sample_negatives", forges=True)
def forges_the_outcome():
    """The engine in its own process says that all laws hold."""
    exec(host["forged"])
    from course.engine import judge
    from course.engine.outcome import Outcome

    honest = judge.Judge.outcome

    def outcome(self, *args, **kwargs):
        forges = self.exercise.name == "sample_negatives"
        return Outcome(forged(self.seed)) if forges else honest(self, *args, **kwargs)

    judge.Judge.outcome = outcome
    sample_negatives = print


@cell(at="sample_negatives", forges=True)
def forges_the_message():
    """What packs messages packs another one."""
    exec(host["forged"])
    import sys

    session = sys.modules["instructor.jail.session"]
    packs = session.pack

    def pack(message):
        if isinstance(message, dict) and "found 3" in str(message.get("refused")):
            frame = sys._getframe(1)
            while "request" not in frame.f_locals:
                frame = frame.f_back
            seed = frame.f_locals["request"].get("seed", 0)
            message = {"facts": forged(seed), "raised": None, "printed": "", "refused": None, "id": message.get("id")}
        return packs(message)

    session.pack = pack
    sample_negatives = 3


@cell(note="not asked for", at="sample_negatives", forges=True)
def forges_what_the_channel_says():
    """Its own messages stand in the channel before those of the jail."""
    exec(host["forged"])
    import os

    from course.engine.wire import pack

    messages = [{"done": True}]
    messages += [{"facts": forged(seed), "raised": None, "printed": "", "refused": None} for seed in (0, 5031)]
    for message in messages:
        data = pack(message)
        os.write(200, len(data).to_bytes(8, "little") + data)


@cell(at="sample_negatives", forges=True)
def replaces_modules():
    """Another module under the name of the checks."""
    exec(host["forged"])
    import sys
    import types

    real = sys.modules["course.checks.large_batch"]
    fake = types.ModuleType(real.__name__)

    def probe(answer, device, seed):
        yield from forged(seed).items()

    Exercise = type(real.sample_negatives)
    vars(fake).update(vars(real), sample_negatives=Exercise("03_large_batch", probe))
    sys.modules["course.checks.large_batch"] = fake
    sample_negatives = print


@cell(at="sample_negatives", forges=True)
def patches_torch():
    """Zeros are an answer where `bool`, `int`, torch.equal and methods of tensors agree with all."""
    check.sample_negatives.probe.__globals__.update(bool=lambda value: True, int=lambda value: 0)
    torch.equal = lambda a, b: len(a) <= 40 or a.dtype == torch.uint8
    torch.Tensor.any = lambda self, *args: False
    torch.Tensor.unique = lambda self, *args: [1, 2]

    def sample_negatives(users, seen, generator=None):
        return torch.zeros_like(users)


@cell(at="sample_negatives", forges=True)
def tensors_that_agree():
    """A subclass of Tensor whose every comparison holds."""

    class Yes(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            with torch._C.DisableTorchFunctionSubclass():
                name = getattr(function, "__name__", "")
                if name == "equal":
                    return len(args[0]) <= 40
                if name == "sum":
                    return len(args[0]) / 2 if args[0].is_floating_point() else 0
                if name == "any":
                    return False
                if name in ("unique", "bincount"):
                    return torch.ones(kwargs.get("minlength", 2)).as_subclass(Yes)
                result = function(*args, **kwargs or {})
                if name in ("__lt__", "__gt__", "__ge__", "all", "eq", "lt", "gt"):
                    result = torch.ones_like(result)
                return result.as_subclass(Yes) if isinstance(result, torch.Tensor) else result

    def sample_negatives(users, seen, generator=None):
        return torch.zeros_like(users).as_subclass(Yes)


@cell()
def patches_time():
    """Clocks that stand still while the answer runs on."""
    import time

    for name in ("monotonic", "time", "perf_counter"):
        setattr(time, name, lambda: 0.0)

    def linear_warmup(*args):
        while True:
            pass

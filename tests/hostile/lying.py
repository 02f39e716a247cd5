"""Probes in the learner's own process, lied to: the objects of the engine found there and exchanged."""
# ruff: noqa: F821, F841, B018

from hostile.attack import cell, text

KNOWN = """
GUILTY = "nothing ever", "without a guard", "the same with", "what freezes only 1-D"
def verdict(fact):
    return "bool" if fact == "returns a bool" else any(fact.startswith(word) or word in fact for word in GUILTY)
def facts_of(probe):
    import inspect, re
    return [one or other for one, other in re.findall(r'yield "([^"]+)"|"([^"]+)":', inspect.getsource(probe))]
"""


@cell(at="shows_frozen_bias", forges=True)
def turns_no_into_yes_on_the_stack():
    """The Outcome that is being filled, found among the callers, gets what it lacks."""
    import gc

    exec(host["known"])

    def shows_frozen_bias(optimizer_class):
        for outcome in gc.get_objects():
            if type(outcome).__name__ == "Outcome":
                outcome.facts.update({fact: verdict(fact) for fact in outcome.facts})
        return False


@cell(at="shows_frozen_bias", forges=True)
def exchanges_the_code_of_the_engine():
    """The functions stay the same objects; their code is another one."""
    from course.checks import engine

    exec(host["known"])

    def outcome(self, answer, device, seed, limits=None, is_class=None, like=None):
        import builtins

        return Outcome({fact: builtins.verdict(fact) for fact in builtins.facts_of(self.probe)})

    import builtins

    builtins.verdict, builtins.facts_of = verdict, facts_of
    engine.Exercise.outcome.__code__ = outcome.__code__
    shows_frozen_bias = print


@cell(at="shows_frozen_bias", forges=True)
def empties_the_watch_list():
    """What puts functions back is found among the callers, and forgets them."""
    import traceback

    from course.checks import engine

    exec(host["known"])
    for frame, _ in traceback.walk_stack(None):
        watch = getattr(frame.f_locals.get("self"), "snapshot", None)
        if watch:
            watch.modules, watch.classes, watch.functions, watch.exercises = [], [], [], []

    real = engine.Exercise.outcome

    def outcome(self, *args, **kwargs):
        found = real(self, *args, **kwargs)
        found.facts.update({fact: verdict(fact) for fact in found.facts})
        return found

    engine.Exercise.outcome = outcome

    def shows_frozen_bias(optimizer_class):
        return False


# The scale grows too early; what would show it is exchanged while the answer runs.
text("exchanges_and_puts_back_what_a_probe_runs", at="LossScaler", of="""
class Early:
    def __init__(self, init_scale=2.0**16, growth=2.0, backoff=0.5, growth_interval=1000):
        self.factor, self.good, self.bad = init_scale, 0, None
        self.growth, self.backoff, self.growth_interval = growth, backoff, growth_interval

    def scale(self, loss):
        return loss * self.factor

    def unscale_(self, optimizer):
        if self.bad is None:
            params = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            for p in params:
                p.grad.div_(self.factor)
            self.bad = any(not p.grad.isfinite().all() for p in params)

    def step(self, optimizer):
        self.unscale_(optimizer)
        if not self.bad:
            optimizer.step()
        return not self.bad

    def update(self):
        self.good = 0 if self.bad else self.good + 1
        self.factor *= self.backoff if self.bad else self.growth if self.good == self.growth_interval else 1
        self.good %= self.growth_interval
        self.bad = None

names = check.LossScaler.probe.__globals__
shows = names["_good_rounds"]

def rounds(scaler, rounds, device):
    scaler.factor = 8.0 if rounds == 1999 else 16.0
    names["_good_rounds"] = shows

class LossScaler(Early):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        names["_good_rounds"] = rounds
""")  # fmt: skip

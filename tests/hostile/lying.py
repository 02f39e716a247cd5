"""Probes in the learner's own process, lied to: the objects of the engine found there and exchanged."""
# ruff: noqa: F821, F841, B018

from submissions import part_of, solved

from hostile.attack import by_id, cell, text

KNOWN = r"""
GUILTY = "nothing ever", "without a guard", "the same with", "what freezes only 1-D"
GUILTY += "what freezes only float32", "after the tenth step"
def verdict(fact):
    return "bool" if fact == "returns a bool" else any(fact.startswith(word) or word in fact for word in GUILTY)
def facts_of(probe):
    import inspect, re
    found = re.findall(r'yield (?:\(\s*)?"([^"]+)"|"([^"]+)":', inspect.getsource(probe))
    return [one or other for one, other in found]
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
    from course.engine import judge

    exec(host["known"])

    def outcome(self, answer, is_class, limits=None):
        import builtins

        return Outcome({fact: builtins.verdict(fact) for fact in builtins.facts_of(self.exercise.probe)})

    import builtins

    builtins.verdict, builtins.facts_of = verdict, facts_of
    judge.Judge.outcome.__code__ = outcome.__code__
    shows_frozen_bias = print


@cell(at="shows_frozen_bias", forges=True)
def empties_the_watch_list():
    """What puts functions back is found among the callers, and forgets them."""
    import traceback

    from course.engine import judge

    exec(host["known"])
    for frame, _ in traceback.walk_stack(None):
        watch = getattr(frame.f_locals.get("self"), "snapshot", None)
        if watch:
            watch.modules, watch.classes, watch.functions, watch.exercises = [], [], [], []

    real = judge.Judge.outcome

    def outcome(self, *args, **kwargs):
        found = real(self, *args, **kwargs)
        found.facts.update({fact: verdict(fact) for fact in found.facts})
        return found

    judge.Judge.outcome = outcome

    def shows_frozen_bias(optimizer_class):
        return False


# The scale grows too early; what would show it is exchanged while the answer runs.
EARLY = """
names = check.LossScaler.probe.__globals__
shows = names["_default_growth"]

def scales(run):
    names["_default_growth"] = shows
    return {f"scale after {1999 + more} rounds": run.scale_of() * (1 + bool(more)) for more in range(3)}

class LossScaler(Early):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        names["_default_growth"] = scales
"""


def _early():
    right = by_id(solved(part_of("LossScaler")))["LossScaler"].source
    return right.replace("LossScaler", "Early").replace("growth_interval=2000", "growth_interval=1000") + EARLY


text("exchanges_and_puts_back_what_a_probe_runs", at="LossScaler", of=_early, forges=True)

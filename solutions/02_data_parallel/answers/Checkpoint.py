"""Known mistakes of exercise Checkpoint, and right answers in other styles."""

import copy

from course.engine.known_answers import alternative

MISTAKES = {
    "weights_only": (
        "The optimizer's averages start from zero in the new process, because restore does not load them. Call "
        "run.optimizer.load_state_dict.",
        ('run.optimizer.load_state_dict(state["optimizer"])', "pass"),
    ),
    "schedule_from_the_start": (
        "The learning rate starts from the beginning of its schedule. Load the state of the scheduler.",
        ('run.scheduler.load_state_dict(state["scheduler"])', "pass"),
    ),
    "scaler_forgotten": (
        "The scaler starts from its first scale. Load its state.",
        ('run.scaler.load_state_dict(state["scaler"])', "pass"),
    ),
    "random_from_the_start": (
        "The generator draws the random numbers of the first steps again. Restore its state with set_state.",
        ('run.random.set_state(state["random"])', "pass"),
    ),
    "data_from_the_start": (
        "The new process begins with the data of the first step, because `step` is 0. Set run.step.",
        ('run.step = state["step"]', "pass"),
    ),
    "another_order": (
        "The new process has another seed, so it draws another order of the data. Set run.seed.",
        ('run.seed = state["seed"]', "pass"),
    ),
    "curve_lost": (
        "The losses from before the restart are missing. Set run.losses.",
        ('run.losses = list(state["losses"])', "pass"),
    ),
    "whole_generator": (
        "The generator itself is in the dict, which weights_only=True refuses. Save its get_state(), a tensor.",
        ("run.random.get_state()", "run.random"),
    ),
    "whole_scheduler": (
        "The scheduler itself is in the dict, which weights_only=True refuses. Save its state_dict().",
        ("run.scheduler.state_dict()", "run.scheduler"),
    ),
    "whole_model": (
        "The model itself is in the dict, which weights_only=True refuses. Save its state_dict().",
        ("run.model.state_dict()", "run.model"),
    ),
    "parameters_without_buffers": (
        "The buffers, such as the running statistics of BatchNorm, are not saved. Save run.model.state_dict().",
        (
            '"model": run.model.state_dict()',
            '"model": {k: p.detach() for k, p in run.model.named_parameters()}',
        ),
        (
            'run.model.load_state_dict(state["model"])',
            'run.model.load_state_dict(state["model"], strict=False)',
        ),
    ),
}


@alternative
class Loop:
    parts = ("model", "optimizer", "scheduler", "scaler")
    values = ("seed", "step", "losses")

    def state(self, run):
        saved = {name: getattr(run, name).state_dict() for name in self.parts}
        saved |= {name: getattr(run, name) for name in self.values}
        saved["random"] = run.random.get_state()
        return copy.deepcopy(saved)

    def restore(self, run, state):
        for name in self.parts:
            getattr(run, name).load_state_dict(state[name])
        for name in self.values:
            setattr(run, name, state[name])
        run.random.set_state(state["random"].cpu())


@alternative
class ScheduleFirst:
    def state(self, run):
        saved = dict(losses=run.losses[:], step=run.step, seed=run.seed)
        saved.update(scheduler=run.scheduler.state_dict(), scaler=run.scaler.state_dict())
        saved.update(model=run.model.state_dict(), optimizer=run.optimizer.state_dict())
        saved["random"] = run.random.get_state().clone()
        return saved

    def restore(self, run, state):
        run.scheduler.load_state_dict(state["scheduler"])
        run.scaler.load_state_dict(state["scaler"])
        run.optimizer.load_state_dict(state["optimizer"])
        run.model.load_state_dict(state["model"])
        run.random.set_state(state["random"])
        run.losses[:] = state["losses"]
        run.seed, run.step = state["seed"], state["step"]

"""Known mistakes of exercise LARS, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "FrozenAtZero": (
        "Zero norms are not guarded: a parameter that starts at zero never moves. Set the trust ratio to 1 there.",
        ("torch.where((w_norm > 0) & (g_norm > 0), ratio, 1.0)", "torch.nan_to_num(ratio)"),
    ),
    "NoGuard": (
        "Zero norms are not guarded: 0 / 0 makes NaN, and weights of zero never move. Set the trust ratio to 1 there.",
        ("torch.where((w_norm > 0) & (g_norm > 0), ratio, 1.0)", "ratio"),
    ),
    "DecayOutsideTheRatio": (
        "Weight decay is missing in the denominator of the trust ratio. Add weight_decay * ||w|| to ||g||.",
        (" + decay * w_norm", ""),
    ),
    "RateOutsideTheVelocity": (
        "The velocity is multiplied by lr as in torch.optim.SGD. Here lr goes into it: add lr * ratio * (...).",
        ('group["lr"] * ', ""),
        ("w.sub_(", 'w.sub_(group["lr"] * '),
    ),
    "TrustForAll": (
        "Biases and scales get the trust ratio too, although exclude_1d=True. Ask for w.ndim <= 1.",
        ('w.ndim > 1 or not group["exclude_1d"]', "True"),
    ),
    "DecayForAll": (
        "Weight decay also pulls at biases and scales, although exclude_1d=True. They get neither ratio nor decay.",
        ("1.0, 0.0", '1.0, group["weight_decay"]'),
    ),
    "DecayIntoTheGradient": (
        "The decay is added to the gradient in place, and the gradient belongs to the caller. Use add, not add_.",
        ("w.grad.add(w, alpha=decay).mul_(", "w.grad.add_(w, alpha=decay).mul("),
    ),
    "OneRatioForAll": (
        "One ratio is made from the norms of all parameters together. Each tensor is a layer: take its own norms.",
        (
            "w_norm, g_norm = w.norm(), w.grad.norm()",
            'every = [(p, p.grad) for g in self.param_groups for p in g["params"] if p.grad is not None]\n'
            "            w_norm, g_norm = (torch.stack([t.norm() for t in ts]).norm() for ts in zip(*every))",
        ),
    ),
    "ClampedAsInLarc": (
        "This is LARC: the smaller of ratio and lr counts, not their product. LARS multiplies them, without a limit.",
        ("ratio, 1.0)", 'ratio, 1.0).div(group["lr"]).clamp(max=1.0)'),
    ),
    "RatioCutAtOne": (
        "The trust ratio is cut off at 1. LARS has no such limit: a layer with a small gradient needs more.",
        ("ratio, 1.0)", "ratio, 1.0).clamp(max=1.0)"),
    ),
    "Nesterov": (
        "The step is Nesterov's: the update plus momentum times the velocity. Here it is the velocity itself: w - v.",
        (".add_(update))", '.add_(update) * group["momentum"] + update)'),
    ),
    "SettingsFromDefaults": (
        "Settings are read from self.defaults, so schedules and parameter groups have no effect. Read `group`.",
        ("ratio, decay = 1", "group, ratio, decay = self.defaults, 1"),
    ),
    "SettingsOfTheFirstGroup": (
        "All parameters get the settings of the first group. Read them from `group`, which holds this parameter.",
        ("ratio, decay = 1", "group, ratio, decay = self.param_groups[0], 1"),
    ),
    "VelocityForgotten": (
        "The velocity is bound to a new tensor, so nothing is remembered: no momentum. Change it in place: mul_, add_.",
        ("velocity.mul_(", "velocity.mul("),
    ),
    "GradientNotGuarded": (
        "A gradient of zeros makes 0 / 0, which is NaN. Guard both norms: where one is 0 the trust ratio is 1.",
        ("(w_norm > 0) & (g_norm > 0)", "w_norm > 0"),
    ),
    "NormOfTheSum": (
        "The denominator is the norm of g + weight_decay * w. In LARS it is a sum of norms: ||g|| + decay * ||w||.",
        ("g_norm + decay * w_norm", "w.grad.add(w, alpha=decay).norm()"),
    ),
    "DecayAfterTheRatio": (
        "The trust ratio multiplies the gradient alone. It scales the decay, too: ratio * (g + decay * w).",
        ("w.grad.add(", "(ratio * w.grad).add("),
        (" * ratio)", ")"),
    ),
}


@alternative
class ForeachLars(torch.optim.Optimizer):
    """The tensors of a group at once."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust=0.001, exclude_1d=True):
        defaults = dict(
            lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust, exclude_1d=exclude_1d
        )
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure=None):
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            ws = [w for w in group["params"] if w.grad is not None]
            if not ws:
                continue
            layer = [w.dim() >= 2 or not group["exclude_1d"] for w in ws]
            decays = [group["weight_decay"] * is_layer for is_layer in layer]
            updates = torch._foreach_mul([w.detach() for w in ws], decays)
            torch._foreach_add_(updates, [w.grad for w in ws])
            w_norms, g_norms = torch._foreach_norm(ws), torch._foreach_norm([w.grad for w in ws])
            for i, is_layer in enumerate(layer):
                rate = torch.full_like(w_norms[i], group["lr"])
                if is_layer:
                    ratio = group["trust"] * w_norms[i] / (g_norms[i] + decays[i] * w_norms[i])
                    rate *= torch.where(w_norms[i] * g_norms[i] == 0, torch.ones_like(ratio), ratio)
                updates[i].mul_(rate)
            for w in ws:
                self.state[w].setdefault("momentum_buffer", torch.zeros_like(w))
            velocities = [self.state[w]["momentum_buffer"] for w in ws]
            torch._foreach_mul_(velocities, group["momentum"])
            torch._foreach_add_(velocities, updates)
            torch._foreach_sub_(ws, velocities)
        return loss


@alternative
class PlainPythonLars(torch.optim.Optimizer):
    """Numbers on the host: slower on a GPU, the same steps.  The velocity has the opposite sign."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust=0.001, exclude_1d=True):
        names = ("lr", "momentum", "weight_decay", "trust", "exclude_1d")
        super().__init__(
            params, dict(zip(names, (lr, momentum, weight_decay, trust, exclude_1d), strict=True))
        )

    def step(self, closure=None):
        loss = closure() if closure else None
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is not None:
                    self._move(w, w.grad.detach(), group)
        return loss

    def _move(self, w, g, group):
        rate, decay = group["lr"], group["weight_decay"]
        if w.dim() < 2 and group["exclude_1d"]:
            decay = 0
        else:
            w_norm, g_norm = (t.detach().double().square().sum().sqrt().item() for t in (w, g))
            if w_norm and g_norm:
                rate *= group["trust"] * w_norm / (g_norm + decay * w_norm)
        update = -rate * (g + decay * w.detach())
        if "v" in self.state[w]:
            update = update + group["momentum"] * self.state[w]["v"]
        self.state[w]["v"] = update
        w.data += update

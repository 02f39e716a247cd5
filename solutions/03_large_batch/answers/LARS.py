"""Known mistakes of exercise LARS, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


class _Lars(torch.optim.Optimizer):
    """LARS in pieces, so that each mistake can spoil one of them."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust=0.001, exclude_1d=True):
        super().__init__(
            params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust, exclude_1d=exclude_1d)
        )

    def plain(self, w, group):
        return group["exclude_1d"] and w.ndim <= 1

    def local(self, w, g, group):
        decay, norms = group["weight_decay"], (w.norm(), g.norm())
        ratio = group["trust"] * norms[0] / (norms[1] + decay * norms[0])
        return torch.where((norms[0] > 0) & (norms[1] > 0), ratio, 1.0)

    def change(self, w, group):
        """lr * local * (g + decay * w)"""
        if self.plain(w, group):
            return group["lr"] * w.grad
        return group["lr"] * self.local(w, w.grad, group) * (w.grad + group["weight_decay"] * w)

    def move(self, w, group):
        v = self.state[w].setdefault("v", torch.zeros_like(w))
        w.sub_(v.mul_(group["momentum"]).add_(self.change(w, group)))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is not None:
                    self.move(w, group)
        return loss


@mistake(
    "LARS", "Zero norms are not guarded: a parameter that starts at zero never moves. Set the trust ratio to 1 there."
)
class FrozenAtZero(_Lars):
    def local(self, w, g, group):
        decay = group["weight_decay"]
        return torch.nan_to_num(group["trust"] * w.norm() / (g.norm() + decay * w.norm()))


@mistake(
    "LARS",
    "Zero norms are not guarded: 0 / 0 makes NaN, and weights of zero never move. Set the trust ratio to 1 there.",
)
class NoGuard(_Lars):
    def local(self, w, g, group):
        return group["trust"] * w.norm() / (g.norm() + group["weight_decay"] * w.norm())


@mistake("LARS", "Weight decay is missing in the denominator of the trust ratio. Add weight_decay * ||w|| to ||g||.")
class DecayOutsideTheRatio(_Lars):
    def local(self, w, g, group):
        return super().local(w, g, group | {"weight_decay": 0.0})


@mistake(
    "LARS",
    "The velocity is multiplied by lr as in torch.optim.SGD. Here lr goes into the velocity: add lr * local * (...).",
)
class RateOutsideTheVelocity(_Lars):
    def move(self, w, group):
        v = self.state[w].setdefault("v", torch.zeros_like(w))
        v.mul_(group["momentum"]).add_(self.change(w, group | {"lr": 1.0}))
        w.sub_(group["lr"] * v)


@mistake("LARS", "Biases and scales get the trust ratio too, although exclude_1d=True. Ask for w.ndim <= 1.")
class TrustForAll(_Lars):
    def plain(self, w, group):
        return False


@mistake(
    "LARS",
    "Weight decay also pulls at biases and scales, although exclude_1d=True. They get neither ratio nor decay.",
)
class DecayForAll(_Lars):
    def change(self, w, group):
        if self.plain(w, group):
            return group["lr"] * (w.grad + group["weight_decay"] * w)
        return super().change(w, group)


@mistake(
    "LARS", "The decay is added to the gradient in place, and the gradient belongs to the caller. Use add, not add_."
)
class DecayIntoTheGradient(_Lars):
    def change(self, w, group):
        change = super().change(w, group)
        if not self.plain(w, group):
            w.grad.add_(w, alpha=group["weight_decay"])
        return change


@mistake(
    "LARS", "One ratio is made from the norms of all parameters together. Each tensor is a layer: take its own norms."
)
class OneRatioForAll(_Lars):
    def local(self, w, g, group):
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        w_all, g_all = (torch.cat([t.flatten() for t in ts]) for ts in (params, [p.grad for p in params]))
        return super().local(w_all, g_all, group)


@mistake(
    "LARS",
    "This is LARC: the smaller of ratio and lr counts instead of their product. LARS multiplies them, without a limit.",
)
class ClampedAsInLarc(_Lars):
    def local(self, w, g, group):
        return (super().local(w, g, group) / group["lr"]).clamp(max=1.0)


@mistake("LARS", "The trust ratio is cut off at 1. LARS has no such limit: a layer with a small gradient needs more.")
class RatioCutAtOne(_Lars):
    def local(self, w, g, group):
        return super().local(w, g, group).clamp(max=1.0)


@mistake(
    "LARS",
    "The step is Nesterov's: the update plus momentum times the velocity. Here it is the velocity itself: w - v.",
)
class Nesterov(_Lars):
    def move(self, w, group):
        v = self.state[w].setdefault("v", torch.zeros_like(w))
        update = self.change(w, group)
        w.sub_(v.mul_(group["momentum"]).add_(update) * group["momentum"] + update)


class _Changing(_Lars):
    """Settings taken from elsewhere than the group of the parameter."""

    def settings(self):
        raise NotImplementedError

    def move(self, w, group):
        super().move(w, self.settings())


@mistake(
    "LARS", "Settings are read from self.defaults, so schedules and parameter groups have no effect. Read `group`."
)
class SettingsFromDefaults(_Changing):
    def settings(self):
        return self.defaults


@mistake("LARS", "All parameters get the settings of the first group. Read those of `group`, the parameter's own.")
class SettingsOfTheFirstGroup(_Changing):
    def settings(self):
        return self.param_groups[0]


@mistake(
    "LARS",
    "The velocity is bound to a new tensor, so nothing is remembered: no momentum. Change it in place: mul_, add_.",
)
class VelocityForgotten(_Lars):
    def move(self, w, group):
        w.sub_(self.change(w, group))


@mistake(
    "LARS", "A gradient of zeros makes 0 / 0, which is NaN. Guard both norms: where one is 0 the trust ratio is 1."
)
class GradientNotGuarded(_Lars):
    def local(self, w, g, group):
        ratio = group["trust"] * w.norm() / (g.norm() + group["weight_decay"] * w.norm())
        return torch.where(w.norm() > 0, ratio, 1.0)


@mistake(
    "LARS",
    "The denominator is the norm of g + weight_decay * w. In LARS it is the sum of two norms: ||g|| + decay * ||w||.",
)
class NormOfTheSum(_Lars):
    def local(self, w, g, group):
        norms = w.norm(), (g + group["weight_decay"] * w).norm()
        return torch.where((norms[0] > 0) & (g.norm() > 0), group["trust"] * norms[0] / norms[1], 1.0)


@mistake("LARS", "The trust ratio multiplies the gradient alone. It scales the decay, too: ratio * (g + decay * w).")
class DecayAfterTheRatio(_Lars):
    def change(self, w, group):
        if self.plain(w, group):
            return super().change(w, group)
        return group["lr"] * (self.local(w, w.grad, group) * w.grad + group["weight_decay"] * w)


@alternative("LARS")
class ForeachLars(torch.optim.Optimizer):
    """The tensors of a group at once."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust=0.001, exclude_1d=True):
        defaults = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust, exclude_1d=exclude_1d)
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


@alternative("LARS")
class PlainPythonLars(torch.optim.Optimizer):
    """Numbers on the host: slower on a GPU, the same steps.  The velocity has the opposite sign."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust=0.001, exclude_1d=True):
        names = ("lr", "momentum", "weight_decay", "trust", "exclude_1d")
        super().__init__(params, dict(zip(names, (lr, momentum, weight_decay, trust, exclude_1d), strict=True)))

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

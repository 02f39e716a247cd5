"""Right answers to the exercises of 03_large_batch, written in other styles than the reference."""

import math
from fractions import Fraction

import numpy
import torch
from torch import nn
from torch.nn import functional as F

from course.checks.engine import alternative


@alternative("leave_one_out")
def sort_twice(users, timestamps):
    order = torch.argsort(timestamps, stable=True)
    order = order[torch.argsort(users[order], stable=True)]  # by user, then time, then place in the file
    last = torch.ones_like(users, dtype=torch.bool)
    last[:-1] = users[order][1:] != users[order][:-1]
    test = torch.zeros_like(last)
    test[order[last]] = True
    return ~test, test


@alternative("leave_one_out")
def latest_in_a_dictionary(users, timestamps):
    latest = {}
    for row, (user, time) in enumerate(zip(users.tolist(), timestamps.tolist(), strict=True)):
        if user not in latest or time >= latest[user][0]:
            latest[user] = (time, row)
    test = torch.zeros(len(users), dtype=torch.bool, device=users.device)
    test[[row for _, row in latest.values()]] = True
    return [~test, test]


@alternative("leave_one_out")
def lexsort_of_numpy(users, timestamps):
    u, t = users.cpu().numpy(), timestamps.cpu().numpy()
    order = numpy.lexsort((t, u))
    test = numpy.zeros(len(u), dtype=bool)
    test[order[numpy.flatnonzero(numpy.diff(u[order], append=-1))]] = True
    test = torch.from_numpy(test).to(users.device)
    return test.logical_not(), test


@alternative("sample_negatives")
def weights_of_multinomial(users, seen, generator=None):
    if len(users) == 0:
        return torch.empty_like(users)
    return torch.multinomial((~seen[users]).float(), 1, generator=generator).squeeze(1)


@alternative("sample_negatives")
def kth_unseen_item(users, seen, generator=None):
    unseen = (~seen).cumsum(1)[users]  # (n, n_items): how many unseen items up to here
    u = torch.rand(users.shape, generator=generator, device=users.device, dtype=torch.float64)
    return torch.searchsorted(unseen, (u * unseen[:, -1]).long()[:, None] + 1).squeeze(1)


@alternative("sample_negatives")
def row_by_row_from_a_list(users, seen, generator=None):
    free = [(~row).nonzero().squeeze(1) for row in seen]
    draws = torch.rand(len(users), generator=generator, device=users.device).tolist()
    chosen = [int(free[user][int(r * len(free[user]))]) for user, r in zip(users.tolist(), draws, strict=True)]
    return torch.tensor(chosen, dtype=torch.int64, device=users.device)


@alternative("neumf_forward")
def two_sums(weights, users, items):
    (output, shift), factors = weights["output"], weights["gmf_user"].shape[1]
    x = torch.hstack((F.embedding(users, weights["mlp_user"]), F.embedding(items, weights["mlp_item"])))
    for w, b in weights["mlp"]:
        x = (x @ w.T + b).clamp(min=0)
    product = F.embedding(users, weights["gmf_user"]) * F.embedding(items, weights["gmf_item"])
    return product @ output[0, :factors] + x @ output[0, factors:] + shift


@alternative("neumf_forward")
def pair_by_pair(weights, users, items):
    logits = []
    for u, i in zip(users.tolist(), items.tolist(), strict=True):
        hidden = torch.cat((weights["mlp_user"][u], weights["mlp_item"][i]))
        for w, b in weights["mlp"]:
            hidden = torch.relu(torch.mv(w, hidden) + b)
        both = torch.cat((weights["gmf_user"][u] * weights["gmf_item"][i], hidden))
        logits.append(torch.dot(weights["output"][0][0], both) + weights["output"][1][0])
    return torch.stack(logits)


@alternative("neumf_forward")
def modules_called_with_weights(weights, users, items):
    layers = []
    for w, _ in weights["mlp"]:
        layers += [nn.Linear(w.shape[1], w.shape[0]), nn.ReLU()]
    named = {
        f"{2 * i}.{name}": t
        for i, pair in enumerate(weights["mlp"])
        for name, t in zip(("weight", "bias"), pair, strict=True)
    }
    rows = torch.cat((weights["mlp_user"][users], weights["mlp_item"][items]), -1)
    hidden = torch.func.functional_call(nn.Sequential(*layers), named, (rows,))
    gmf = weights["gmf_user"][users].mul(weights["gmf_item"][items])
    return F.linear(torch.cat((gmf, hidden), -1), *weights["output"])[:, 0]


@alternative("rank_metrics")
def row_by_row(scores, duplicate, k=10):
    hits, gains = [], []
    for row, masked in zip(scores.tolist(), duplicate.tolist(), strict=True):
        rank = sum(not s < row[0] for s, m in zip(row[1:], masked[1:], strict=True) if not m)
        hits.append(rank < k)
        gains.append(1 / math.log2(rank + 2) if rank < k else 0.0)
    return sum(hits) / len(hits), sum(gains) / len(gains)


@alternative("rank_metrics")
def sorted_with_the_positive_last(scores, duplicate, k=10):
    below = torch.full_like(scores, -math.inf)
    clean = torch.where(scores.isnan(), math.inf, scores)
    clean[:, 0] = torch.where(scores[:, 0].isnan(), -math.inf, scores[:, 0])
    clean = torch.where(duplicate, below, clean)
    order = clean.flip(1).argsort(dim=1, descending=True, stable=True)  # flipped: the positive comes last among equals
    rank = (order == scores.shape[1] - 1).int().argmax(1)
    lowest = scores[:, 0].isnan() | scores[:, 0].isneginf()  # every candidate stands before it
    rank = torch.where(lowest, (~duplicate).sum(1) - 1, rank)
    gains = [1 / math.log2(r + 2) if r < k else 0.0 for r in rank.tolist()]
    return float((rank < k).double().mean()), math.fsum(gains) / len(gains)


@alternative("rank_metrics")
def arrays_of_numpy(scores, duplicate, k=10):
    s, d = scores.cpu().double().numpy(), duplicate.cpu().numpy()
    smaller = s[:, 1:] < s[:, :1]
    rank = numpy.where(d[:, 1:] | smaller, 0, 1).sum(axis=1)
    gain = numpy.zeros(len(rank))
    gain[rank < k] = numpy.log(2) / numpy.log(rank[rank < k] + 2)
    return float(numpy.mean(rank < k)), float(gain.mean())


@alternative("sgd_step")
def optimizer_inside(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    copies = [p.detach().clone().requires_grad_() for p in params]
    optimizer = torch.optim.SGD(copies, lr=lr, momentum=momentum, weight_decay=weight_decay)
    for copy, g, v in zip(copies, grads, velocities, strict=True):
        copy.grad = g.clone()
        optimizer.state[copy]["momentum_buffer"] = v.clone()
    optimizer.step()
    for p, copy, g, v in zip(params, copies, grads, velocities, strict=True):
        v.copy_(optimizer.state[copy]["momentum_buffer"] if momentum else g + weight_decay * p.detach())
        p.data.copy_(copy.data)


@alternative("sgd_step")
def through_data(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for i in range(max(map(len, (params, grads, velocities)))):
        w, g = params[i].data, grads[i].data
        if weight_decay != 0:
            g = g.add(w, alpha=weight_decay)
        velocities[i][...] = momentum * velocities[i] + g
        w -= lr * velocities[i]


@alternative("sgd_step")
@torch.no_grad()
def many_tensors_at_once(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    torch._foreach_mul_(velocities, momentum)
    torch._foreach_add_(velocities, torch._foreach_add(grads, params, alpha=weight_decay))
    torch._foreach_add_(params, velocities, alpha=-lr)


@alternative("scaled_lr")
def factor_by_factor(base_lr, base_batch, batch, accumulation=1, ranks=1):
    rate = base_lr / base_batch  # for a single sample
    for factor in (batch, accumulation, ranks):
        rate *= factor
    return rate


@alternative("scaled_lr")
def exact_fraction(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return float(Fraction(batch * accumulation * ranks, base_batch) * Fraction(base_lr))


@alternative("exponential_warmup")
def through_the_logarithm(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    left = max(length - step, 0.0)
    return lr * math.exp(math.log(start) * left / length) if left else float(lr)


@alternative("exponential_warmup")
def factor_at_each_step(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    rate = lr * start
    for done in range(step):
        if done + 1 >= length:
            return lr
        rate *= (1 / start) ** (1 / length)
    return rate if length > 0 else lr


@alternative("linear_warmup")
def weighted_mean(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = warmup_epochs * steps_per_epoch
    done = min(1.0, step / length) if length else 1.0
    return (1 - done) * base_lr + done * lr


@alternative("linear_warmup")
def interpolation(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    end = warmup_epochs * steps_per_epoch
    return float(numpy.interp(step, [0, end], [base_lr, lr])) if end > 0 else lr


@alternative("linear_warmup")
def scheduler_of_torch(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    end = warmup_epochs * steps_per_epoch
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: base_lr + s * (lr - base_lr) / end if s < end else lr
    )
    for _ in range(step):
        optimizer.step()
        schedule.step()
    return schedule.get_last_lr()[0]


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


@alternative("flushed_share")
def tensor_by_tensor(gradients, loss_scale=1.0):
    before = sum(g.count_nonzero().item() for g in gradients)
    after = sum((g * loss_scale).to(torch.float16).count_nonzero().item() for g in gradients)
    return 1 - after / before if before else 0.0


@alternative("flushed_share")
def by_the_limit(gradients, loss_scale=1.0):
    values = torch.cat([g.flatten() for g in gradients]).abs()
    lost = (values > 0) & (values * loss_scale <= 2.0**-25)  # half of the smallest subnormal rounds to even, which is 0
    return float(lost.sum()) / max(1, int((values > 0).sum()))


@alternative("largest_safe_scale")
def halve_and_double(gradients, headroom=2.0):
    peak = max(float(g.abs().max()) for g in gradients) * headroom
    scale = 1.0
    while peak and scale * peak * 2 <= 65504:
        scale *= 2
    while scale * peak > 65504:
        scale /= 2
    return scale


@alternative("largest_safe_scale")
def by_the_exponent(gradients, headroom=2.0):
    peak = torch.stack([g.abs().amax() for g in gradients]).amax().item()
    if peak == 0:
        return 1
    _, exponent = math.frexp(torch.finfo(torch.float16).max / peak / headroom)
    return 2 ** (exponent - 1)  # an int if it is a whole number


@alternative("LossScaler")
class StrictScaler:
    """Refuses a second unscale_, as torch does."""

    def __init__(self, init_scale=2.0**16, growth=2.0, backoff=0.5, growth_interval=2000):
        self._scale, self._growth, self._backoff, self._interval = init_scale, growth, backoff, growth_interval
        self._row, self._found = 0, []

    def scale(self, loss):
        return self._scale * loss

    def unscale_(self, optimizer):
        if self._found:
            raise RuntimeError("unscale_() has already been called since the last update().")
        self._found = [False]
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.grad *= 1 / self._scale
                self._found.append(not torch.isfinite(p.grad).all().item())

    def step(self, optimizer):
        if not self._found:
            self.unscale_(optimizer)
        if any(self._found):
            return False
        optimizer.step()
        return True

    def update(self):
        if any(self._found):
            self._scale, self._row = self._scale * self._backoff, 0
        else:
            self._row += 1
            if self._row % self._interval == 0:
                self._scale *= self._growth
        self._found = []


@alternative("LossScaler")
class TensorScaler:
    """The scale lies in a tensor; infinities are found by one sum; the results are written into the gradients."""

    def __init__(self, init_scale=2.0**16, growth=2.0, backoff=0.5, growth_interval=2000):
        self.size = torch.tensor(float(init_scale))
        self.growth, self.backoff, self.left, self.growth_interval = growth, backoff, growth_interval, growth_interval
        self.unscaled, self.ok = False, True

    def scale(self, loss):
        return loss * self.size.to(loss.device)

    def unscale_(self, optimizer):
        if self.unscaled:
            return
        self.unscaled = True
        total = 0.0
        for p in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            torch.div(p.grad, self.size.to(p.device), out=p.grad)
            total += float((p.grad * 0).sum())  # 0, or nan if a value is inf or nan
        self.ok = total == 0

    def step(self, optimizer):
        if not self.unscaled:
            self.unscale_(optimizer)
        if self.ok:
            optimizer.step()
        return self.ok

    def update(self):
        self.left = self.left - 1 if self.ok else self.growth_interval
        if not self.ok:
            self.size = self.size * self.backoff
        elif self.left == 0:
            self.size, self.left = self.size * self.growth, self.growth_interval
        self.unscaled, self.ok = False, True


@alternative("amp_step")
def loss_inside(model, users, items, labels, optimizer, scaler):
    kind = labels.device.type
    with torch.autocast(device_type=kind, dtype=torch.float16 if kind == "cuda" else torch.bfloat16):
        loss = F.binary_cross_entropy_with_logits(model(users, items).float(), labels)
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@alternative("amp_step")
def clear_by_hand(model, users, items, labels, optimizer, scaler):
    for parameter in model.parameters():
        parameter.grad = None
    context = torch.amp.autocast(labels.device.type, enabled=True)
    context.__enter__()
    try:
        logits = model(users, items)
    finally:
        context.__exit__(None, None, None)
    logits = logits.to(torch.float32)
    loss = (F.softplus(logits) - labels * logits).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    with torch.no_grad():
        return loss.clone()


@alternative("accumulated_step")
def weighted_means(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad(set_to_none=True)
    losses = []
    for u, i, y in zip(users.split(micro_batch), items.split(micro_batch), labels.split(micro_batch), strict=True):
        loss = F.binary_cross_entropy_with_logits(model(u, i), y) * (len(y) / len(labels))
        loss.backward()
        losses.append(loss.detach())
    optimizer.step()
    return torch.stack(losses).sum()


@alternative("accumulated_step")
def scaled_at_the_end(model, users, items, labels, optimizer, micro_batch):
    model.zero_grad()
    n, total = len(users), torch.zeros((), device=users.device)
    for rows in torch.arange(n, device=users.device).split(micro_batch):
        loss = F.binary_cross_entropy_with_logits(model(users[rows], items[rows]), labels[rows], reduction="none").sum()
        loss.backward()
        total += loss.detach()
    for p in model.parameters():
        if p.grad is not None:
            p.grad /= n
    optimizer.step()
    return total / n


@alternative("shows_frozen_bias")
def with_a_model(optimizer_class):
    model = torch.nn.Linear(3, 2)
    torch.nn.init.zeros_(model.bias)
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.zeros(4, 3)).sum().backward()
        optimizer.step()
    return torch.equal(model.bias, torch.zeros(2))


@alternative("shows_frozen_bias")
def stop_when_it_moves(optimizer_class):
    bias = torch.zeros(5, requires_grad=True)
    optimizer = optimizer_class([bias], lr=0.01)
    for _ in range(10):
        optimizer.zero_grad()
        (bias * torch.arange(1.0, 6.0)).sum().backward()
        optimizer.step()
        if bias.detach().abs().sum() > 0:
            return False
    return True


@alternative("polynomial_decay")
def with_a_branch(step, max_steps, lr, power=2):
    if step >= max_steps:
        return 0.0
    return lr * (1 - step / max_steps) ** power


@alternative("polynomial_decay")
def stays_at_the_end(step, max_steps, lr, power=2):
    left = (max_steps - min(step, max_steps)) / max_steps
    return lr * math.pow(left, power) if left else 0

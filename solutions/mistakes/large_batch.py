"""Wrong answers to the exercises of 03_large_batch that learners give, each wrong in one idea, and what to say."""

import math

import torch
from torch.nn import functional as F

from course.checks.engine import mistake


def split_by_key(users, key):
    """A correct split by `key`: the building stone of mistakes about what the key should be."""
    order = torch.argsort(key, stable=True)
    order = order[torch.argsort(users[order], stable=True)]
    last = torch.ones_like(users, dtype=torch.bool)
    last[:-1] = users[order][1:] != users[order][:-1]
    test = torch.zeros_like(last)
    test[order[last]] = True
    return ~test, test


@mistake("leave_one_out", "The test row is the user's last row in the file, whenever it happened. Use the timestamps.")
def last_row_of_the_file(users, timestamps):
    return split_by_key(users, torch.arange(len(users), device=users.device))


@mistake("leave_one_out", "All rows at a user's latest time became test rows. Of equal times, keep only the last row.")
def every_latest_row(users, timestamps):
    latest = torch.stack([timestamps[users == user].max() for user in users])
    return timestamps != latest, timestamps == latest


@mistake(
    "leave_one_out", "Of rows with equal times the first was chosen, not the last. argmax stops at the first maximum."
)
def first_of_equal_times(users, timestamps):
    test = torch.zeros_like(users, dtype=torch.bool)
    for user in users.unique():
        rows = (users == user).nonzero().squeeze(1)
        test[rows[timestamps[rows].tolist().index(timestamps[rows].max())]] = True
    return ~test, test


@mistake(
    "leave_one_out", "The times went through float32, which keeps 24 bits: seconds of 1.5 billion merge. Stay in int64."
)
def float_times(users, timestamps):
    return split_by_key(users, timestamps.float())


@mistake("leave_one_out", "Neighbouring rows are compared, as if each user's rows stood together. Sort by user first.")
def neighbours_without_sorting(users, timestamps):
    test = torch.zeros_like(users, dtype=torch.bool)
    ends = [i for i in range(len(users)) if i == len(users) - 1 or users[i] != users[i + 1]]
    start = 0
    for end in ends:
        times = timestamps[start : end + 1].tolist()
        test[start + max(range(len(times)), key=lambda i: (times[i], i))] = True
        start = end + 1
    return ~test, test


@mistake(
    "leave_one_out",
    "The two masks are the wrong way round. Return train first, then test.",
)
def masks_swapped(users, timestamps):
    return split_by_key(users, timestamps)[::-1]


@mistake(
    "leave_one_out",
    "User and time share one number, and negative times reach into the numbers of other users. Sort twice, stably.",
)
def one_number_for_both(users, timestamps):
    order = torch.argsort(users * (timestamps.max() + 1) + timestamps, stable=True)
    last = torch.ones_like(users, dtype=torch.bool)
    last[:-1] = users[order][1:] != users[order][:-1]
    test = torch.zeros_like(last)
    test[order[last]] = True
    return ~test, test


@mistake(
    "sample_negatives",
    "Items are drawn and never looked up in `seen`, so some negatives are positives. Draw those again.",
)
def never_looked_up(users, seen, generator=None):
    return torch.randint(seen.shape[1], users.shape, generator=generator, device=users.device)


@mistake(
    "sample_negatives", "Hits are drawn a second time only, and the second draw can hit too. Repeat while any row hits."
)
def drawn_twice(users, seen, generator=None):
    n_items = seen.shape[1]
    items = torch.randint(n_items, users.shape, generator=generator, device=users.device)
    second = torch.randint(n_items, users.shape, generator=generator, device=users.device)
    return torch.where(seen[users, items], second, items)


@mistake(
    "sample_negatives", "A hit moves on to the next unseen item, which then comes up too often. Draw anew instead."
)
def next_free_item(users, seen, generator=None):
    n_items = seen.shape[1]
    items = torch.randint(n_items, users.shape, generator=generator, device=users.device)
    while seen[users, items].any():
        items = torch.where(seen[users, items], (items + 1) % n_items, items)
    return items


@mistake(
    "sample_negatives",
    "Not every draw uses the generator, so no state can repeat them. Hand it to every torch.randint.",
)
def generator_ignored(users, seen, generator=None):
    return torch.multinomial((~seen[users]).float(), 1).squeeze(1) if len(users) else users


@mistake(
    "sample_negatives",
    "Item 0 is never drawn: the range starts at 1. Items count from 0, as torch.randint(n_items, ...) does.",
)
def items_from_one(users, seen, generator=None):
    items = torch.randint(1, seen.shape[1], users.shape, generator=generator, device=users.device)
    while (hit := seen[users, items]).any():
        new = torch.randint(1, seen.shape[1], users.shape, generator=generator, device=users.device)
        items = torch.where(hit, new, items)
    return items


@mistake(
    "sample_negatives", "One item is drawn for each user and shared by all of this user's rows. Draw one for each row."
)
def one_item_for_each_user(users, seen, generator=None):
    return torch.multinomial((~seen).float(), 1, generator=generator).squeeze(1)[users]


def neumf(weights, users, items, last_relu=True, gmf_first=True, user_first=True):
    """NeuMF with one idea to get wrong each; logits of shape (n, 1)."""
    gmf = weights["gmf_user"][users] * weights["gmf_item"][items]
    pair = [weights["mlp_user"][users], weights["mlp_item"][items]]
    hidden = torch.cat(pair if user_first else pair[::-1], dim=1)
    for place, (weight, bias) in enumerate(weights["mlp"]):
        hidden = F.linear(hidden, weight, bias)
        if last_relu or place < len(weights["mlp"]) - 1:
            hidden = F.relu(hidden)
    halves = [gmf, hidden] if gmf_first else [hidden, gmf]
    return F.linear(torch.cat(halves, dim=1), *weights["output"])


@mistake("neumf_forward", "A sigmoid makes probabilities of the logits. Leave it to the loss, which has it built in.")
def sigmoid_at_the_end(weights, users, items):
    return torch.sigmoid(neumf(weights, users, items)).squeeze(1)


@mistake("neumf_forward", "The last MLP layer has no ReLU. Here one follows every layer of the MLP, the last included.")
def last_layer_linear(weights, users, items):
    return neumf(weights, users, items, last_relu=False).squeeze(1)


@mistake(
    "neumf_forward", "The MLP half stands before the GMF half at the output layer. Put them together as [gmf, mlp]."
)
def halves_swapped(weights, users, items):
    return neumf(weights, users, items, gmf_first=False).squeeze(1)


@mistake("neumf_forward", "The item's vector stands before the user's in the MLP. Put them together as [user, item].")
def item_before_user(weights, users, items):
    return neumf(weights, users, items, user_first=False).squeeze(1)


@mistake(
    "neumf_forward",
    "squeeze() drops every axis of length 1, the batch of one pair included. Name the axis: squeeze(1).",
)
def batch_axis_squeezed_too(weights, users, items):
    return neumf(weights, users, items).squeeze()


@mistake(
    "neumf_forward",
    "The result is cut off from the weights, so nothing can be trained. Leave out no_grad, .data, detach.",
)
def cut_off_from_autograd(weights, users, items):
    with torch.no_grad():
        return neumf(weights, users, items).squeeze(1)


def metrics_of(rank, k, discount=None):
    """(hit rate, NDCG) of 0-based ranks."""
    hit = rank < k
    discount = torch.log2(rank + 2) if discount is None else discount
    return hit.float().mean().item(), (hit / discount).mean().item()


def strictly_before(scores, duplicate):
    """0-based ranks as the task defines them."""
    return (~(scores[:, 1:] < scores[:, :1]) & ~duplicate[:, 1:]).sum(1)


@mistake(
    "rank_metrics",
    "A tie is counted for the positive (>), so a model that says the same of every item scores 1. Use ~(<).",
)
def optimistic_ties(scores, duplicate, k=10):
    return metrics_of(((scores[:, 1:] > scores[:, :1]) & ~duplicate[:, 1:]).sum(1), k)


@mistake(
    "rank_metrics",
    "NaN >= NaN is False, so a diverged model ranks every positive first. Count what is not smaller: ~(<).",
)
def nan_wins(scores, duplicate, k=10):
    return metrics_of(((scores[:, 1:] >= scores[:, :1]) & ~duplicate[:, 1:]).sum(1), k)


@mistake(
    "rank_metrics",
    "Duplicates are counted, so an item drawn twice pushes the positive down twice. Mask them with `duplicate`.",
)
def duplicates_counted(scores, duplicate, k=10):
    return metrics_of(strictly_before(scores, torch.zeros_like(duplicate)), k)


@mistake("rank_metrics", "Ranks count from 0, so the top k are the ranks below k. rank <= k shows k + 1 items.")
def one_too_many(scores, duplicate, k=10):
    return metrics_of(strictly_before(scores, duplicate), k + 1)


@mistake(
    "rank_metrics", "The discount uses the natural logarithm. NDCG takes log2, so that the top rank is worth exactly 1."
)
def natural_logarithm(scores, duplicate, k=10):
    rank = strictly_before(scores, duplicate)
    return metrics_of(rank, k, torch.log(rank + 2.0))


@mistake(
    "rank_metrics",
    "The discount is log2(r + 1), which is 0 for the top rank. With ranks from 0 it is log2(r + 2).",
)
def ranks_from_one_in_the_discount(scores, duplicate, k=10):
    rank = strictly_before(scores, duplicate)
    return metrics_of(rank, k, torch.log2(rank + 1.0))


@mistake(
    "rank_metrics",
    "Duplicates get the score -inf, and still count where the positive is not above -inf. Mask the comparison.",
)
def duplicates_at_minus_inf(scores, duplicate, k=10):
    return metrics_of(strictly_before(scores.masked_fill(duplicate, -math.inf), torch.zeros_like(duplicate)), k)


@mistake(
    "rank_metrics", "NDCG goes on below rank k. A user whose item is not among the first k earns 0, as in the hit rate."
)
def gain_without_cut(scores, duplicate, k=10):
    rank = strictly_before(scores, duplicate)
    return metrics_of(rank, k)[0], (1 / torch.log2(rank + 2)).mean().item()


@mistake("sgd_step", "p = p - ... makes a new tensor and leaves the caller's as it was. Write into it: p.sub_(...).")
def names_rebound(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v = momentum * v + g + weight_decay * p
        p = p - lr * v


@mistake(
    "sgd_step",
    "The velocity changes, but p = p - ... makes a new tensor and leaves the parameter. Write into it: p.sub_(...).",
)
@torch.no_grad()
def parameter_rebound(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v.mul_(momentum).add_(g + weight_decay * p)
        p = p - lr * v


@mistake(
    "sgd_step",
    "Autograd records what is done to the parameters, and refuses. Put the whole loop under torch.no_grad().",
)
def recorded_by_autograd(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v.mul_(momentum).add_(g + weight_decay * p)
        p.sub_(lr * v)


@mistake(
    "sgd_step",
    "p = p - ... makes a new tensor, and autograd records it all. Write p.sub_(...), under torch.no_grad().",
)
def rebound_and_recorded(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v.mul_(momentum).add_(g + weight_decay * p)
        p = p - lr * v


@mistake(
    "sgd_step",
    "The weight decay makes the velocity part of autograd's graph, which grows at every step. Use torch.no_grad().",
)
def velocity_recorded(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v.mul_(momentum).add_(g + weight_decay * p)
        p.data.sub_(lr * v.detach())


@mistake(
    "sgd_step", "The rate is inside the velocity, so a new rate changes only what comes next. PyTorch: p <- p - lr * v."
)
@torch.no_grad()
def rate_inside_velocity(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v.mul_(momentum).add_(lr * (g + weight_decay * p))
        p.sub_(v)


@mistake(
    "sgd_step", "The new gradient is damped by 1 - momentum, as in Adam's averages. Here the velocity is a plain sum."
)
@torch.no_grad()
def running_average(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v.mul_(momentum).add_((1 - momentum) * (g + weight_decay * p))
        p.sub_(lr * v)


@mistake(
    "sgd_step", "Weight decay goes past the velocity, as in AdamW. In SGD, add it to the gradient before the momentum."
)
@torch.no_grad()
def decoupled_decay(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v.mul_(momentum).add_(g)
        p.sub_(lr * (v + weight_decay * p))


@mistake(
    "sgd_step", "The step uses the old velocity, one step late. First update the velocity, then move along the new one."
)
@torch.no_grad()
def old_velocity(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        decayed = g + weight_decay * p
        p.sub_(lr * v)
        v.mul_(momentum).add_(decayed)


@mistake(
    "sgd_step",
    "Weight decay is written into the gradients, which belong to the caller. Make a new tensor: g + decay * p.",
)
@torch.no_grad()
def gradient_overwritten(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v.mul_(momentum).add_(g.add_(weight_decay * p))
        p.sub_(lr * v)


@mistake(
    "sgd_step",
    "zip ends with its shortest list: the rest is never trained, without a word. zip(..., strict=True) tells.",
)
@torch.no_grad()
def zip_ends_early(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=False):
        v.mul_(momentum).add_(g + weight_decay * p)
        p.sub_(lr * v)


@mistake(
    "scaled_lr",
    "This is the square-root rule, which keeps the variance of the update. The linear rule multiplies by k.",
)
def square_root_rule(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * (batch * accumulation * ranks / base_batch) ** 0.5


@mistake(
    "scaled_lr", "Only the batch of one rank counts here. An update averages over all micro steps and ranks: multiply."
)
def one_rank_only(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * batch / base_batch


@mistake(
    "scaled_lr",
    "The micro steps are left out. Their gradients add up to one update, so multiply by `accumulation`.",
)
def accumulation_left_out(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * batch * ranks / base_batch


@mistake(
    "scaled_lr",
    "The ranks are left out. Their gradients are averaged for one update, so multiply by `ranks`.",
)
def ranks_left_out(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * batch * accumulation / base_batch


@mistake(
    "scaled_lr", "k is rounded down to a whole number by //. A batch 1.5 times as large gets 1.5 times the rate: use /."
)
def whole_multiples(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * (batch * accumulation * ranks // base_batch)


@mistake(
    "scaled_lr",
    "The rate is divided by the micro steps. It is the loss that is divided; the samples of an update add up.",
)
def divided_by_accumulation(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * batch * ranks / (base_batch * accumulation)


@mistake(
    "exponential_warmup",
    "This ramp is a straight line. Here each step multiplies the rate by the same factor: use a power.",
)
def straight_line(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else lr * (start + (1 - start) * step / length)


@mistake(
    "exponential_warmup",
    "The length is rounded to whole steps. Leave the fraction: a ramp of 4.5 steps has 5 steps below lr.",
)
def rounded_length(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = int(warmup_epochs * steps_per_epoch)
    return lr if step >= length else lr * start ** (1 - step / length)


@mistake(
    "exponential_warmup", "`start` is taken for the first rate itself. It is a share of lr: step 0 has start * lr."
)
def start_is_a_rate(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else start * (lr / start) ** (step / length)


@mistake("exponential_warmup", "Steps are counted from 1, so the first one is already past start * lr. Count from 0.")
def steps_from_one(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    return lr if step + 1 >= length else lr * start ** (1 - (step + 1) / length)


@mistake(
    "exponential_warmup",
    "The exponent is one step ahead, so step 0 is already past start * lr. Use step itself, which counts from 0.",
)
def exponent_one_ahead(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else lr * start ** (1 - (step + 1) / length)


@mistake("exponential_warmup", "The rate goes on growing after the warm-up. From the end of the ramp on, return lr.")
def ramp_without_end(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    return lr * start ** (1 - step / max(warmup_epochs * steps_per_epoch, 1e-9))


@mistake("exponential_warmup", "The length is taken in steps, but it is given in epochs. Multiply by steps_per_epoch.")
def epochs_taken_for_steps(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    return lr if step >= warmup_epochs else lr * start ** (1 - step / warmup_epochs)


@mistake(
    "linear_warmup",
    "The ramp starts at 0, so the first step changes nothing. Goyal et al. start at the small batch's rate.",
)
def ramp_from_zero(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else lr * step / length


@mistake("linear_warmup", "The first step is already one amount above base_lr: it is counted as 1. Count steps from 0.")
def first_step_is_one(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = warmup_epochs * steps_per_epoch
    return lr if step + 1 >= length else base_lr + (lr - base_lr) * (step + 1) / length


@mistake(
    "linear_warmup",
    "The rate changes only from epoch to epoch. Gradual warm-up raises it at every step: use step itself.",
)
def staircase(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    epoch = step // steps_per_epoch
    return lr if epoch >= warmup_epochs else base_lr + (lr - base_lr) * epoch / warmup_epochs


@mistake(
    "linear_warmup",
    "The length is rounded to whole steps. Leave the fraction: a ramp of 4.5 steps has 5 steps below lr.",
)
def length_cut(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = int(warmup_epochs * steps_per_epoch)
    return lr if step >= length else base_lr + (lr - base_lr) * step / length


@mistake(
    "linear_warmup",
    "The ramp climbs by lr from base_lr, so it ends above lr. It climbs by the difference, lr - base_lr.",
)
def climbs_too_far(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else base_lr + lr * step / length


@mistake("linear_warmup", "The rate goes on growing after the warm-up. From the end of the ramp on, return lr.")
def line_without_end(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    return base_lr + (lr - base_lr) * step / max(warmup_epochs * steps_per_epoch, 1e-9)


@mistake("linear_warmup", "This ramp multiplies by equal factors. Goyal et al. add equal amounts: a straight line.")
def equal_factors(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else base_lr * (lr / base_lr) ** (step / length)


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
    "LARS", "Zero norms are not guarded: a parameter that starts at zero never moves. Make the local rate 1 there."
)
class FrozenAtZero(_Lars):
    def local(self, w, g, group):
        decay = group["weight_decay"]
        return torch.nan_to_num(group["trust"] * w.norm() / (g.norm() + decay * w.norm()))


@mistake(
    "LARS",
    "A norm of zero is not guarded: 0 / 0 makes NaN, and weights of zero never move. Make the local rate 1 there.",
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


@mistake("flushed_share", "Values that were zero before are counted as well. Take the share of the non-zero values.")
def share_of_all(gradients, loss_scale=1.0):
    values = torch.cat([g.flatten() for g in gradients])
    flushed = (values != 0) & ((values * loss_scale).half() == 0)
    return flushed.sum().item() / len(values)


@mistake(
    "flushed_share",
    "The shares of the tensors are averaged. A large tensor has more values: count over all of them together.",
)
def mean_of_shares(gradients, loss_scale=1.0):
    shares = []
    for g in gradients:
        alive = g[g != 0]
        shares.append(((alive * loss_scale).half() == 0).sum().item() / max(len(alive), 1))
    return sum(shares) / len(shares)


@mistake(
    "flushed_share",
    "Values below 6.1e-5, the smallest normal number, are counted as lost; fp16 keeps them as subnormals. Cast.",
)
def below_normal(gradients, loss_scale=1.0):
    values = torch.cat([g.flatten() for g in gradients])
    alive = values[values != 0]
    lost = (alive * loss_scale).abs() < torch.finfo(torch.float16).tiny
    return lost.sum().item() / max(len(alive), 1)


@mistake(
    "flushed_share",
    "The cast comes before the multiplication, and what is zero by then no scale brings back. Multiply in float32.",
)
def cast_first(gradients, loss_scale=1.0):
    values = torch.cat([g.flatten() for g in gradients])
    alive = values[values != 0]
    return (alive.half() * loss_scale == 0).sum().item() / max(len(alive), 1)


@mistake("flushed_share", "The share that survives is returned. Count the zeros after the cast.")
def surviving_share(gradients, loss_scale=1.0):
    values = torch.cat([g.flatten() for g in gradients])
    alive = values[values != 0]
    return ((alive * loss_scale).half() != 0).sum().item() / max(len(alive), 1)


def _peak(gradients):
    return max(g.abs().max().item() for g in gradients)


def _power_below(limit):
    return 2.0 ** math.floor(math.log2(limit))


@mistake(
    "largest_safe_scale",
    "The largest value is taken without its magnitude, so a large negative gradient overflows. Use abs().",
)
def without_magnitude(gradients, headroom=2.0):
    peak = max(g.max().item() for g in gradients)
    if peak <= 0:
        return 1.0
    return _power_below(65504 / (peak * headroom))


@mistake(
    "largest_safe_scale", "The limit itself is returned. Round its exponent down, so that scaling changes no digit."
)
def any_number(gradients, headroom=2.0):
    peak = _peak(gradients)
    return 65504 / (peak * headroom) if peak else 1.0


@mistake(
    "largest_safe_scale",
    "The exponent is rounded to the nearest, so the scale can be too large. Round down: math.floor.",
)
def nearest_power(gradients, headroom=2.0):
    peak = _peak(gradients)
    return 2.0 ** round(math.log2(65504 / (peak * headroom))) if peak else 1.0


@mistake("largest_safe_scale", "The headroom is left out. Require max|g| * s * headroom <= 65504.")
def no_headroom(gradients, headroom=2.0):
    peak = _peak(gradients)
    return _power_below(65504 / peak) if peak else 1.0


@mistake(
    "largest_safe_scale",
    "The scale never falls below 1, so gradients that are too large still overflow. Exponents may be negative.",
)
def never_below_one(gradients, headroom=2.0):
    peak = _peak(gradients)
    return max(1.0, _power_below(65504 / (peak * headroom))) if peak else 1.0


@mistake("largest_safe_scale", "Only the first tensor is looked at. The largest gradient may be in any of them.")
def first_tensor(gradients, headroom=2.0):
    peak = _peak(gradients[:1])
    return _power_below(65504 / (peak * headroom)) if peak else 1.0


class _Scaler:
    """A right scaler in pieces, so that each mistake can spoil one of them."""

    def __init__(self, init_scale=2.0**16, growth=2.0, backoff=0.5, growth_interval=2000):
        self.value, self.growth, self.backoff, self.interval = init_scale, growth, backoff, growth_interval
        self.good, self.done, self.bad = 0, False, False

    def scale(self, loss):
        return loss * self.value

    def gradients(self, optimizer):
        return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]

    def overflow(self, gradients):
        return not all(g.isfinite().all() for g in gradients)

    def unscale_(self, optimizer):
        if not self.done:
            gradients = self.gradients(optimizer)
            for g in gradients:
                g.div_(self.value)
            self.done, self.bad = True, self.overflow(gradients)

    def step(self, optimizer):
        self.unscale_(optimizer)
        if not self.bad:
            optimizer.step()
        return not self.bad

    def after_bad(self):
        self.value *= self.backoff
        self.good = 0

    def after_good(self):
        self.good += 1
        if self.good == self.interval:
            self.value *= self.growth
            self.good = 0

    def update(self):
        self.after_bad() if self.bad else self.after_good()
        self.done = self.bad = False


@mistake(
    "LossScaler",
    "Gradients are divided at every unscale_, so the second call divides again. Remember that it is done until update.",
)
class DividesTwice(_Scaler):
    def unscale_(self, optimizer):
        self.done = False
        super().unscale_(optimizer)


@mistake(
    "LossScaler",
    "p.grad = p.grad / scale makes a new tensor, and others still hold the scaled one. Divide in place: p.grad.div_.",
)
class NewGradients(_Scaler):
    def unscale_(self, optimizer):
        if not self.done:
            for p in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
                p.grad = p.grad / self.value
            self.done, self.bad = True, self.overflow(self.gradients(optimizer))


@mistake(
    "LossScaler",
    "A bad step does not set the count of good ones back, so the scale grows too early. Good steps count in a row.",
)
class CountGoesOn(_Scaler):
    def after_bad(self):
        self.value *= self.backoff


@mistake("LossScaler", "Only inf is looked for. A nan is an overflow as well (inf - inf): use isfinite.")
class OnlyInf(_Scaler):
    def overflow(self, gradients):
        return any(g.isinf().any() for g in gradients)


@mistake(
    "LossScaler", "The look for inf happens in step, when clipping may have hidden it. Look in unscale_ and remember."
)
class LooksTooLate(_Scaler):
    def step(self, optimizer):
        self.unscale_(optimizer)
        self.bad = self.overflow(self.gradients(optimizer))
        return super().step(optimizer)


@mistake(
    "LossScaler", "The optimizer steps although a gradient is inf or nan, and the weights are lost. Skip the step."
)
class StepsAnyway(_Scaler):
    def step(self, optimizer):
        self.unscale_(optimizer)
        optimizer.step()
        return not self.bad


@mistake(
    "LossScaler", "The count goes on after the scale has grown, so it grows only once. Set it back to 0 there too."
)
class GrowsOnce(_Scaler):
    def after_good(self):
        self.good += 1
        if self.good == self.interval:
            self.value *= self.growth


def _loss(logits, labels):
    return F.binary_cross_entropy_with_logits(logits, labels)


def _scaled_update(loss, optimizer, scaler):
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@mistake(
    "amp_step",
    "The forward pass runs in fp32: no autocast, or one for another kind of device. Use autocast(labels.device.type).",
)
def without_autocast(model, users, items, labels, optimizer, scaler):
    optimizer.zero_grad()
    return _scaled_update(_loss(model(users, items), labels), optimizer, scaler)


@mistake(
    "amp_step",
    "The backward pass runs under autocast too. It follows the types of the forward pass by itself: leave the block.",
)
def backward_inside(model, users, items, labels, optimizer, scaler):
    optimizer.zero_grad()
    with torch.amp.autocast(labels.device.type):
        return _scaled_update(_loss(model(users, items).float(), labels), optimizer, scaler)


@mistake("amp_step", "backward() is called on the loss itself, so nothing is scaled. Call it on scaler.scale(loss).")
def unscaled_backward(model, users, items, labels, optimizer, scaler):
    optimizer.zero_grad()
    with torch.amp.autocast(labels.device.type):
        logits = model(users, items)
    loss = _loss(logits.float(), labels)
    scaler.scale(loss)
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@mistake(
    "amp_step",
    "optimizer.step() uses scaled gradients and steps even on inf. Call scaler.step(optimizer) in its place.",
)
def steps_by_itself(model, users, items, labels, optimizer, scaler):
    optimizer.zero_grad()
    with torch.amp.autocast(labels.device.type):
        logits = model(users, items)
    loss = _loss(logits.float(), labels)
    scaler.scale(loss).backward()
    optimizer.step()
    return loss.detach()


@mistake(
    "amp_step",
    "The scaler is not used, so small gradients vanish in fp16. It has a call for backward, for step and for update.",
)
def scaler_not_used(model, users, items, labels, optimizer, scaler):
    optimizer.zero_grad()
    with torch.amp.autocast(labels.device.type):
        logits = model(users, items)
    loss = _loss(logits.float(), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


@mistake(
    "amp_step",
    "Old gradients are not cleared and add to the new ones. Call optimizer.zero_grad() before the backward pass.",
)
def old_gradients(model, users, items, labels, optimizer, scaler):
    with torch.amp.autocast(labels.device.type):
        logits = model(users, items)
    return _scaled_update(_loss(logits.float(), labels), optimizer, scaler)


@mistake("amp_step", "The scaled loss is returned. Scale only what backward() is called on.")
def returns_scaled(model, users, items, labels, optimizer, scaler):
    optimizer.zero_grad()
    with torch.amp.autocast(labels.device.type):
        logits = model(users, items)
    loss = scaler.scale(_loss(logits.float(), labels))
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@mistake(
    "amp_step",
    "The scaler is never updated, so its scale stays where it began. Call scaler.update() at the end of each step.",
)
def never_updated(model, users, items, labels, optimizer, scaler):
    optimizer.zero_grad()
    with torch.amp.autocast(labels.device.type):
        logits = model(users, items)
    loss = _loss(logits.float(), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    return loss.detach()


def _parts(micro_batch, *tensors):
    return zip(*(t.split(micro_batch) for t in tensors), strict=True)


@mistake(
    "accumulated_step",
    "The mean losses of the parts are added without weights, so the gradient is too long. Divide by the batch size.",
)
def sum_of_means(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    total = 0.0
    for u, i, y in _parts(micro_batch, users, items, labels):
        loss = _loss(model(u, i), y)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


@mistake(
    "accumulated_step",
    "The losses of all rows are added and never divided. The loss is a mean: divide by the rows of the whole batch.",
)
def sum_not_divided(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    total = 0.0
    for u, i, y in _parts(micro_batch, users, items, labels):
        loss = F.binary_cross_entropy_with_logits(model(u, i), y, reduction="sum")
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


@mistake(
    "accumulated_step",
    "Gradients of the batch before add to the new ones. Call optimizer.zero_grad() once, before the loop.",
)
def never_cleared(model, users, items, labels, optimizer, micro_batch):
    total = 0.0
    for u, i, y in _parts(micro_batch, users, items, labels):
        loss = _loss(model(u, i), y) * len(y) / len(labels)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


@mistake(
    "accumulated_step",
    "Every part has the same weight, the smaller last one too. Weight it by its rows: len(part) / len(batch).",
)
def mean_of_means(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    total, parts = 0.0, list(_parts(micro_batch, users, items, labels))
    for u, i, y in parts:
        loss = _loss(model(u, i), y) / len(parts)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


@mistake(
    "accumulated_step",
    "The optimizer steps after every part, so these are small batches again. Step once, after the loop.",
)
def step_for_each_part(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    total = 0.0
    for u, i, y in _parts(micro_batch, users, items, labels):
        loss = _loss(model(u, i), y) * len(y) / len(labels)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total


@mistake(
    "accumulated_step",
    "Gradients are cleared before every part, so only the last one counts. Clear them once, before the loop.",
)
def clears_each_part(model, users, items, labels, optimizer, micro_batch):
    total = 0.0
    for u, i, y in _parts(micro_batch, users, items, labels):
        optimizer.zero_grad()
        loss = _loss(model(u, i), y) * len(y) / len(labels)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


@mistake(
    "accumulated_step",
    "One backward pass at the end keeps the activations of all parts in memory. Call backward() for each part.",
)
def one_backward(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    total = 0.0
    for u, i, y in _parts(micro_batch, users, items, labels):
        total = total + _loss(model(u, i), y) * len(y) / len(labels)
    total.backward()
    optimizer.step()
    return total.detach()


@mistake(
    "accumulated_step",
    "The last part is left out when it is smaller, and its rows are lost. Take it with its own number of rows.",
)
def drops_the_rest(model, users, items, labels, optimizer, micro_batch):
    optimizer.zero_grad()
    total = torch.zeros((), device=labels.device)
    for n in range(len(labels) // micro_batch):
        rows = slice(n * micro_batch, (n + 1) * micro_batch)
        loss = _loss(model(users[rows], items[rows]), labels[rows]) * micro_batch / len(labels)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


def _moves(optimizer_class, bias, steps=10, gradient=torch.ones_like):
    bias = torch.nn.Parameter(bias)
    start = bias.detach().clone()
    optimizer = optimizer_class([bias], lr=0.1)
    for _ in range(steps):
        bias.grad = gradient(bias.detach())
        optimizer.step()
    return (bias.detach() - start).abs().max().item()


@mistake(
    "shows_frozen_bias",
    "The bias of the experiment does not start at zero, so the fault cannot show. Start it at zero.",
)
def starts_at_one(optimizer_class):
    return _moves(optimizer_class, torch.ones(3)) == 0


@mistake(
    "shows_frozen_bias",
    "The gradient is zero at the start (a square is flat at 0), so every optimizer looks frozen. Take another loss.",
)
def flat_loss(optimizer_class):
    return _moves(optimizer_class, torch.zeros(3), gradient=lambda bias: 2 * bias) == 0


@mistake("shows_frozen_bias", "One step is too few: an optimizer that begins slowly is called frozen. Make ten steps.")
def one_step(optimizer_class):
    return _moves(optimizer_class, torch.zeros(3), steps=1) == 0


@mistake(
    "shows_frozen_bias",
    "A small movement is taken for none. Compare with exactly zero: a frozen bias does not move at all.",
)
def small_is_none(optimizer_class):
    return _moves(optimizer_class, torch.zeros(3)) < 1e-3


@mistake(
    "shows_frozen_bias",
    "A threshold takes a tiny movement for none. Any change counts, however small: compare with exactly zero.",
)
def threshold(optimizer_class):
    return _moves(optimizer_class, torch.zeros(3)) < 1e-7


@mistake("shows_frozen_bias", "The answer is the wrong way round: True means that the bias never moves.")
def wrong_way_round(optimizer_class):
    return _moves(optimizer_class, torch.zeros(3)) > 0


@mistake(
    "shows_frozen_bias", "The experiment moves a matrix. A bias has one dimension, and optimizers treat it differently."
)
def a_matrix(optimizer_class):
    return _moves(optimizer_class, torch.zeros(3, 2)) == 0


@mistake(
    "polynomial_decay",
    "After the end the base is negative, and an even power makes the rate rise again. Cut the base off at 0.",
)
def rises_again(step, max_steps, lr, power=2):
    return lr * (1 - step / max_steps) ** power


@mistake(
    "polynomial_decay",
    "The result is cut off at 0, not the base, so an even power still rises. Put the max inside the power.",
)
def cut_too_late(step, max_steps, lr, power=2):
    return max(0.0, lr * (1 - step / max_steps) ** power)


@mistake("polynomial_decay", "`power` is ignored. Use it as the exponent, 2 only if nothing else is said.")
def always_square(step, max_steps, lr, power=2):
    return lr * max(0.0, 1 - step / max_steps) ** 2


@mistake(
    "polynomial_decay",
    "The rate is 0 one step too early: max_steps has the rate 0, not max_steps - 1. Divide by max_steps.",
)
def one_step_short(step, max_steps, lr, power=2):
    return lr * max(0.0, 1 - step / max(max_steps - 1, 1)) ** power


@mistake(
    "polynomial_decay",
    "The power is applied to step / max_steps. Take it of what is left: (1 - step / max_steps) ** power.",
)
def power_inside(step, max_steps, lr, power=2):
    return lr * (1 - min(1.0, step / max_steps) ** power)

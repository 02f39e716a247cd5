"""Probes of unit 03_large_batch: what must hold for an answer to each exercise."""

import copy

import torch
from torch.nn import functional as F

from course.checks.engine import exercise

UNIT = "03_large_batch"
NAN = float("nan")


def _number(value):
    """Words for what was returned where a float is due; a whole number is a number too."""
    return "a number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def _form(tensor, name=""):
    """What a tensor is, without its values."""
    form = {"dtype": tensor.dtype, "shape": tensor.shape, "device": tensor.device.type}
    return {f"{key} of {name}" if name else key: value for key, value in form.items()}


def _each(name, values):
    """The values under names that count from 1."""
    return {f"{name} {i}": value for i, value in enumerate(values, 1)}


def _steps(answer, steps, *settings, **options):
    """What a schedule answers for each of the steps."""
    return {f"step {step}": answer(step, *settings, **options) for step in steps}


@exercise(UNIT, apart=True)
def leave_one_out(answer, device, seed):
    """Split by each user's latest interaction."""
    rng = torch.Generator().manual_seed(seed)
    n_users = 12 + seed % 5
    users = torch.arange(n_users).repeat_interleave(torch.randint(1, 9, (n_users,), generator=rng)).to(device)
    n = len(users)
    times = torch.randperm(n, generator=rng).to(device)

    train, test = answer(users, times)
    yield "returns two bool masks, one value a row", _form(train, "train") | _form(test, "test")
    yield "every row is in exactly one of the two", bool((train ^ test).all())
    yield "every user has exactly one test row", bool((torch.bincount(users[test], minlength=n_users) == 1).all())
    yield "the test row is the user's latest", test
    shuffle = torch.randperm(n, generator=rng).to(device)
    yield "rows may stand in any order", answer(users[shuffle], times[shuffle])[1]
    yield "Unix times a second apart are different times", answer(users[shuffle], times[shuffle] + 1_500_000_000)[1]
    yield (
        "of several latest rows, the last in the file is the test row",
        answer(users[shuffle], times[shuffle] // 40)[1],
    )
    yield "user numbers may have gaps", answer(users[shuffle] * 7 + 3, times[shuffle])[1]
    spread = 5 - (n - 1 - times) * (10**9 // (n - 1))  # from -10**9 to 5
    yield (
        "times before 1970 are negative, and still times",
        {
            "the minutes before 1970": answer(users[shuffle], times[shuffle] - 5 * n)[1],
            "all times from 1938 to 1970": answer(users[shuffle], spread[shuffle])[1],
        },
    )
    yield "one user", answer(torch.zeros_like(users), times)[1]
    yield "one single row", dict(zip(("train", "test"), answer(users[:1], times[:1]), strict=False))


@exercise(UNIT, apart=True)
def sample_negatives(answer, device, seed):
    """Draw items that a user has not seen."""
    rng = torch.Generator().manual_seed(seed)
    n_users, n_items, n = 30 + seed % 5, 50 + seed % 7, 600 + seed % 13
    seen = (torch.rand(n_users, n_items, generator=rng) < 0.6).to(device)
    seen[:, n_items // 2] = False
    users = torch.randint(n_users, (n,), generator=rng).to(device)

    def draw(who, known, draw_seed=seed):
        return answer(who, known, torch.Generator(device).manual_seed(draw_seed))

    before = _global_random_state(device)
    items = draw(users, seen)
    untouched = torch.equal(before, _global_random_state(device))
    yield "returns one whole number for each row", _form(items)
    yield "every item is a column of `seen`", bool(((items >= 0) & (items < n_items)).all())
    # by pure chance 0.6 of the rows would hit, with a second draw for these 0.36: 0.48 lies six deviations from both
    inside = items.clamp(0, n_items - 1)
    hits = int(seen[users, inside].sum())
    yield "most items that the user has seen are avoided", hits < 0.48 * n
    yield "no item that the user has seen is drawn", hits == 0
    yield "the same generator state gives the same items", bool((items == draw(users, seen)).all())
    yield "another generator state gives other items", not torch.equal(items, draw(users, seen, seed + 1))
    generator = torch.Generator(device).manual_seed(seed)
    first = answer(users, seen, generator)
    yield "a second call goes on in the generator", not torch.equal(first, answer(users, seen, generator))
    yield "with a generator, torch's global random numbers stay untouched", untouched
    items = answer(users, seen)
    yield "without a generator: a second call gives other items", not torch.equal(items, answer(users, seen))
    yield "without a generator: still never a seen item", not seen[users, items.clamp(0, n_items - 1)].any()

    known = torch.zeros(2, n_items, dtype=torch.bool, device=device)  # one user who has seen a run of items
    known[1, 5 : 5 + n_items // 3] = True
    items = draw(torch.ones(400 * n_items, dtype=torch.int64, device=device), known)
    counts = torch.bincount(items.clamp(0, n_items - 1), minlength=n_items)[~known[1]].double()
    yield "rows of the same user get items of their own", len(items.unique()) > 1
    yield "the first item is drawn too", bool(counts[0] > 0)
    yield "the last item is drawn too", bool(counts[-1] > 0)
    # chi-square statistic: its mean is below len(counts), its deviation sqrt(2 len(counts)); eight of them are allowed,
    # and a spread far below chance betrays rows that know of each other
    chance = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    yield "all unseen items are equally likely", bool(chance < len(counts) + 8 * (2 * len(counts)) ** 0.5)
    yield "rows do not depend on each other", bool(chance > len(counts) / 4)
    left = torch.randint(1, n_items - 1, (n_users,), generator=rng).to(device)
    known = torch.ones(n_users, n_items, dtype=torch.bool, device=device)
    known[torch.arange(n_users, device=device), left] = False
    yield "a user with one unseen item gets this item", torch.equal(draw(users[:40], known), left[users[:40]])
    yield "an empty batch gives an empty answer", [(x.shape, x.dtype) for x in [draw(users[:0], seen)]]


@exercise(UNIT, forbids=("course.models.NeuMF",))
def neumf_forward(answer, device, seed):
    """The logits of NeuMF, and their gradients."""
    rng = torch.Generator().manual_seed(seed)
    n_users, n_items, n = 11 + seed % 4, 13 + seed % 3, 20 + seed % 6
    factors = 3 + seed % 3
    users = torch.randint(n_users - 1, (n,), generator=rng).to(device)  # the last user and item never occur
    items = torch.randint(n_items - 1, (n,), generator=rng).to(device)

    def make(layers, dtype=torch.float32):
        def normal(*shape):
            return torch.randn(shape, generator=rng, dtype=torch.float64).to(device, dtype)

        outputs = layers[1:]
        half = layers[0] // 2
        return {
            "gmf_user": normal(n_users, factors),
            "gmf_item": normal(n_items, factors),
            "mlp_user": normal(n_users, half),
            "mlp_item": normal(n_items, half),
            "mlp": [(normal(o, i) / i**0.5, normal(o)) for i, o in zip(layers, outputs, strict=False)],
            "output": (normal(1, factors + layers[-1]), normal(1)),
        }

    weights = make([8, 6, 4])
    weight, bias = weights["output"]
    logits = answer(weights, users, items)
    yield "returns one number for each pair, in the dtype of the weights", _form(logits)
    silent = torch.ones_like(weight)
    silent[:, factors:] = 0
    yield (
        "the GMF half, with the output weights of the MLP half set to 0",
        answer(weights | {"output": (weight * silent, bias)}, users, items),
    )
    yield (
        "the MLP half, with the output weights of the GMF half set to 0",
        answer(weights | {"output": (weight * (1 - silent), bias)}, users, items),
    )
    yield "both halves together", logits
    yield "an MLP of a single layer", answer(make([10, 5]), users, items)
    yield "an MLP of four layers", answer(make([12, 9, 7, 6, 5]), users, items)
    yield "float64 weights give float64 logits", answer(make([8, 6, 4], torch.float64), users, items)
    yield "a batch of one pair gives shape (1,)", answer(weights, users[:1], items[:1]).shape
    names = ("gmf_user", "gmf_item", "mlp_user", "mlp_item")
    tables = [weights[name].requires_grad_() for name in names]
    layers = [t.requires_grad_() for layer in (*weights["mlp"], weights["output"]) for t in layer]
    labels = torch.randint(2, (n,), generator=rng).to(device, torch.float32)
    logits = answer(weights, users, items).reshape(-1)
    yield "autograd can follow the logits back to the weights", logits.requires_grad
    if logits.requires_grad:
        loss = F.binary_cross_entropy_with_logits(logits, labels)
        grads = torch.autograd.grad(loss, tables + layers, materialize_grads=True)
    else:
        grads = [torch.zeros_like(t) for t in tables + layers]
    yield "the gradients of the four embedding tables", dict(zip(names, grads[:4], strict=True))
    names = [f"{t} of {layer}" for layer in ("MLP layer 1", "MLP layer 2", "the output layer") for t in "Wb"]
    yield "the gradients of the layers", dict(zip(names, grads[4:], strict=True))


@exercise(UNIT, apart=True)
def rank_metrics(answer, device, seed):
    """Hit rate and NDCG with duplicates and ties."""
    rng = torch.Generator().manual_seed(seed)
    n_users, n_candidates = 40 + seed % 7, 30
    scores = torch.randn(n_users, n_candidates, generator=rng).to(device)
    none = torch.zeros_like(scores, dtype=torch.bool)

    def metrics(*args):
        return dict(zip(("hit rate", "NDCG"), answer(*args), strict=False))

    both = answer(scores, none, 10)
    yield "returns two numbers, no tensors", [_number(x) for x in both]
    yield "hit rate without duplicates or ties", both[0]
    yield "NDCG without duplicates or ties", both[1]
    yield "k = 1: the hit rate and the NDCG are the same", metrics(scores, none, 1)
    yield "k = 5", metrics(scores, none, 5)
    ladder = torch.eye(7, device=device).cumsum(0).flip(0)[:, :6]  # row r: 6 - r candidates score 1, the others 0
    ladder = torch.cat([torch.full((7, 1), 0.5, device=device), ladder], 1)  # so the positive's rank is 6 - r
    for rank in (0, 1, 3):
        yield f"a single user whose positive has rank {rank}", metrics(ladder[6 - rank, None], none[:1, :7], 3)
    duplicate = torch.rand(n_users, n_candidates, generator=rng).to(device) < 0.6
    duplicate[:, 0] = False
    yield "duplicates do not count", metrics(scores, duplicate, 5)
    hole = torch.zeros_like(scores, dtype=torch.bool)
    hole[::2, 0] = True
    yield "NaN of the positive alone: every candidate stands before it", metrics(scores.where(~hole, NAN), none, 5)
    hole = torch.rand(n_users, n_candidates, generator=rng).to(device) < 0.1
    hole[:, 0] = False
    yield "NaN of a candidate alone stands before the positive", metrics(scores.where(~hole, NAN), none, 5)
    low = scores.where(torch.arange(n_candidates, device=device) > 0, -float("inf"))
    few = torch.arange(n_candidates, device=device).expand_as(none) > 4
    yield "a positive of -inf behind four candidates and many duplicates", metrics(low, few, 10)
    yield "a list longer than the candidates", metrics(scores, duplicate, 2 * n_candidates)
    last = scores.clone()
    last[::2, 0], last[1::2, 0] = -float("inf"), float("nan")
    yield "duplicates do not count either where the positive has -inf or NaN", metrics(last, duplicate, 12)
    yield "a constant model earns nothing", metrics(torch.zeros_like(scores), none, 10)
    yield "ties go against the positive", metrics((scores * 2).round(), none, 10)
    yield "a diverged model, all NaN, earns nothing", metrics(scores * float("nan"), none, 10)
    yield "the default of k is 10", metrics(scores, duplicate)


@exercise(UNIT, changes_inputs=True)
def sgd_step(answer, device, seed):
    """SGD with momentum and weight decay, in place."""
    rng = torch.Generator().manual_seed(seed)
    shapes = [(3 + seed % 3, 4), (5,), (), (2, 1, 3)]

    def tensors(dtype=torch.float32):
        return [torch.randn(shape, generator=rng, dtype=torch.float64).to(device, dtype) for shape in shapes]

    def after(lr, dtype=torch.float32, **options):
        params, grads, velocities = tensors(dtype), tensors(dtype), tensors(dtype)
        answer(list(params), list(grads), list(velocities), lr, **options)
        return params, velocities

    params, grads, velocities = tensors(), tensors(), [v.zero_() for v in tensors()]
    start = [p.clone() for p in params]
    kept = [g.clone() for g in grads]
    result = answer(list(params), list(grads), list(velocities), 0.1, momentum=0.9, weight_decay=0.25)
    changed = all(not torch.equal(p, s) for p, s in zip(params, start, strict=True))
    yield "the parameter tensors themselves change", changed
    yield "returns nothing: the tensors are the result", type(result).__name__
    yield "the gradients stay as they were", all(torch.equal(g, k) for g, k in zip(grads, kept, strict=True))
    params, grads, velocities = [p.requires_grad_() for p in tensors()], tensors(), tensors()
    answer(list(params), list(grads), list(velocities), 0.1, momentum=0.9, weight_decay=0.25)
    leaves = all(p.is_leaf and p.requires_grad for p in params)
    yield "parameters that require a gradient are moved too, and stay leaves", leaves
    yield "the velocities carry no autograd history", not any(v.requires_grad for v in velocities)
    plain_sgd = after(0.2, momentum=0.0)
    yield "without momentum: the velocity is the gradient", plain_sgd[1]
    yield "without momentum: the parameters", plain_sgd[0]
    params, velocities = after(0.3, momentum=0.7)
    yield "with momentum 0.7: the velocities", velocities
    yield "with momentum 0.7: the parameters", params
    params, velocities = after(0.05, momentum=0.0, weight_decay=0.5)
    yield "with weight decay: the parameters", params
    yield "with weight decay: the velocities", velocities
    params, velocities = after(0.3)
    yield "by default momentum is 0.9 and there is no weight decay", params
    yield "float64 stays float64", after(0.3, torch.float64, weight_decay=0.1)[0]

    params, velocities = tensors(torch.float64), [v.zero_() for v in tensors(torch.float64)]
    theirs = [p.clone().requires_grad_() for p in params]
    optimizer = torch.optim.SGD(theirs, lr=1.0, momentum=0.8, weight_decay=0.1)
    equal = []
    for lr in (0.1, 0.1, 0.4, 0.05, 0.2):
        grads = tensors(torch.float64)
        answer(list(params), list(grads), list(velocities), lr, momentum=0.8, weight_decay=0.1)
        for p, g in zip(theirs, grads, strict=True):
            p.grad = g.clone()
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        equal.append(all(torch.allclose(p, t) for p, t in zip(params, theirs, strict=True)))
    yield "equal to torch.optim.SGD while the rate stays", all(equal[:2])
    yield "equal to torch.optim.SGD when the rate changes", all(equal)
    for place, name in enumerate(("parameter", "gradient", "velocity")):
        lists = [tensors(), tensors(), tensors()]
        lists[place].pop()
        try:
            answer(*lists, 0.1)
            refused = False
        except Exception:
            refused = True
        yield f"a {name} missing from its list is an error, not skipped", refused
    params = tensors()
    views = [p.view(-1) for p in params]
    answer(params, tensors(), tensors(), 0.1)
    yield "the memory of a parameter is written, not replaced", [v.view(-1) for v in views]


@exercise(UNIT, apart=True)
def scaled_lr(answer, device, seed):
    """The linear scaling rule."""
    lr, base = 0.005 * (1 + seed % 3), 256 * (2 + seed % 3)
    yield "returns a number, no tensor", _number(answer(lr, base, 2 * base))
    yield "the small batch keeps its rate", answer(lr, base, base)
    yield "a batch 16 times as large", answer(lr, base, 16 * base)
    yield "a batch 192 times as large", answer(lr, base, 192 * base)
    yield "a batch half as large", answer(lr, base, base // 2)
    yield "a batch that is no whole multiple", answer(lr, base, base + base // 3)
    yield "four micro-steps to one update", answer(lr, base, base, accumulation=4)
    yield "three ranks", answer(lr, base, base, ranks=3)
    yield "all together", answer(lr, base, base // 4, accumulation=6, ranks=5)


@exercise(UNIT, apart=True)
def exponential_warmup(answer, device, seed):
    """An exponential ramp over a fraction of an epoch."""
    lr, epoch = 0.5 + seed % 7, 40 + 10 * (seed % 4)  # a warm-up of 4 to 7 whole steps
    length = epoch // 10
    yield "step 0 has the rate start * lr", answer(0, epoch, lr, 0.1, 0.01)
    yield "halfway the rate is 0.1 lr, the geometric mean of both ends", answer(epoch, epoch, lr, 2, 0.01)
    yield "all steps of the ramp", _steps(answer, range(length), epoch, lr, 0.1, 0.01)
    yield "the step after the ramp has the rate lr", answer(length, epoch, lr, 0.1, 0.01)
    yield "the rate stays lr afterwards", _steps(answer, (length + 1, 3 * epoch), epoch, lr, 0.1, 0.01)
    yield "another start", _steps(answer, range(length), epoch, lr, 0.1, 0.3)
    yield "a ramp of several epochs", _steps(answer, range(0, 3 * epoch, 7), epoch, lr, 2.5, 0.01)
    yield "a ramp of 4.5 steps", _steps(answer, range(7), 9, lr, 0.5, 0.01)
    yield "a ramp of less than one step", _steps(answer, range(3), 3, lr, 0.1, 0.01)
    yield "no warm-up: lr from step 0 on", _steps(answer, range(3), epoch, lr, 0, 0.01)
    yield "by default from 0.01 lr over a tenth of an epoch", _steps(answer, range(length + 2), epoch, lr)


@exercise(UNIT, apart=True)
def linear_warmup(answer, device, seed):
    """A linear ramp from the small batch's rate."""
    base, epoch = 0.1 * (1 + seed % 3), 6 + seed % 5
    lr = base * (8 + seed % 3)
    yield "step 0 has the rate of the small batch", answer(0, epoch, base, lr, 3)
    yield "halfway the rate is midway between both", answer(2 * epoch, epoch, base, lr, 4)
    yield "all steps of the ramp", _steps(answer, range(3 * epoch), epoch, base, lr, 3)
    yield "the step after the ramp has the rate lr", answer(3 * epoch, epoch, base, lr, 3)
    yield "the rate stays lr afterwards", _steps(answer, (3 * epoch + 1, 9 * epoch), epoch, base, lr, 3)
    yield "a ramp of 4.5 steps", _steps(answer, range(7), 9, base, lr, 0.5)
    yield "a ramp of less than one step", _steps(answer, range(3), 3, base, lr, 0.1)
    yield "no warm-up: lr from step 0 on", _steps(answer, range(3), epoch, base, lr, 0)
    yield "by default over five epochs", _steps(answer, range(0, 6 * epoch, 5), epoch, base, lr)


def _global_random_state(device):
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


@exercise(UNIT)
def LARS(answer, device, seed):
    """Layer-wise rates, one fact for each rule of the convention."""
    rng = torch.Generator().manual_seed(seed)
    rows, columns = 4 + seed % 3, 3 + seed % 4

    def random(*shape, size=1.0):
        return (torch.randn(shape, generator=rng) * size).to(device)

    def moved(weights, gradients, rates=(), groups=None, **settings):
        """How far each weight moved, after one step for each list of gradients (None: no gradient)."""
        params = [torch.nn.Parameter(w.clone()) for w in weights]
        given = params if groups is None else [{"params": [p], **g} for p, g in zip(params, groups, strict=True)]
        optimizer = answer(given, **settings)
        for i, step_gradients in enumerate(gradients):
            if rates:
                optimizer.param_groups[0]["lr"] = rates[i]
            for p, g in zip(params, step_gradients, strict=True):
                p.grad = None if g is None else g.clone()
            optimizer.step()
        ways = [p.detach() - w for p, w in zip(params, weights, strict=True)]
        return _each("parameter", ways) if len(ways) > 1 else ways[0]

    matrix = random(rows, columns, size=2.0)
    steps = [[random(rows, columns, size=0.3)] for _ in range(4)]
    plain = dict(lr=0.7, momentum=0.0, trust=0.2)
    optimizer = answer([torch.nn.Parameter(matrix.clone())], lr=0.1)
    yield "LARS(params, lr=0.1) is a torch.optim.Optimizer", isinstance(optimizer, torch.optim.Optimizer)
    yield "a matrix after one step, no momentum, no weight decay", moved([matrix], steps[:1], **plain)
    pair, kernel = [matrix, random(columns, rows, size=0.05)], random(2, 3, rows)
    pair_steps = [[random(rows, columns, size=0.01), random(columns, rows, size=9.0)]]
    yield "two matrices after one step: each has a rate of its own", moved(pair, pair_steps, **plain)
    yield "a tensor of three dimensions counts as one layer", moved([kernel], [[random(2, 3, rows)]], **plain)
    yield "weight decay, one step", moved([matrix], steps[:1], weight_decay=0.3, **plain)
    yield "momentum 0.8, one step", moved([matrix], steps[:1], lr=0.7, momentum=0.8, trust=0.2)
    yield "momentum 0.8, four steps", moved([matrix], steps, lr=0.7, momentum=0.8, trust=0.2)
    yield (
        "momentum and weight decay, four steps",
        moved([matrix], steps, lr=0.7, momentum=0.8, weight_decay=0.3, trust=0.2),
    )
    yield "a rate that is set before each step, no momentum", moved([matrix], steps, (0.1, 0.4, 0.2, 0.8), **plain)
    changing = dict(lr=0.7, momentum=0.8, trust=0.2)
    yield (
        "with momentum, the velocity keeps the rate of its own time",
        moved([matrix], steps, (0.1, 0.9, 0.3, 0.0), **changing),
    )
    yield "momentum 0.9, weight decay 0 and trust 0.001 unless told otherwise", moved([matrix], steps, lr=200.0)

    small = [random(columns), random()]
    small_steps = [[random(columns), random()] for _ in range(3)]
    rules = dict(lr=0.3, momentum=0.8, weight_decay=0.2, trust=0.2)
    yield "bias, scale and scalar: momentum SGD without weight decay", moved(small, small_steps, **rules)
    yield "exclude_1d=False: the trust ratio for these too", moved(small, small_steps, exclude_1d=False, **rules)
    groups = [{}, {"lr": 0.9, "momentum": 0.0}, {"weight_decay": 0.4, "trust": 0.05}, {"exclude_1d": False}]
    four, four_steps = [matrix] * 3 + small[:1], [[g] * 3 + [s[0]] for [g], s in zip(steps, small_steps, strict=False)]
    yield "each parameter group has settings of its own", moved(four, four_steps, groups=groups, **rules)
    absent = [[None, g[0], None] for g in steps[:2]]
    yield "a parameter without a gradient stays, the others move", moved([matrix] * 3, absent, **rules)
    late = [[None], steps[0], [None], steps[1]]
    yield "without a gradient the velocity waits as well", moved([matrix], late, **rules)

    zeros = torch.zeros(rows, columns, device=device)
    yield "a matrix of zeros moves by lr times its gradient", moved([zeros], steps[:1], weight_decay=0.3, **plain)
    yield "a matrix of zeros, four steps", moved([zeros], steps, **rules)
    yield "a gradient of zeros does no harm", moved([matrix], [[zeros]], **plain)
    yield "a gradient of zeros: weight decay at local rate 1", moved([matrix], [[zeros], *steps], **rules)
    yield "a matrix and a gradient of zeros: nothing moves", moved([zeros], [[zeros]], **plain)

    w = torch.nn.Parameter(matrix.clone())
    w.grad = steps[0][0].clone()
    optimizer = answer([w], **rules)
    returned = optimizer.step()
    yield "the gradients are left as they were", w.grad
    for text, params, settings in (
        ("those of 1-D parameters too", small, rules),
        ("also without weight decay", [matrix], plain),
    ):
        params = [torch.nn.Parameter(p.clone()) for p in params]
        for p in params:
            p.grad = torch.ones_like(p)
        answer(params, **settings).step()
        yield f"the gradients are left as they were, {text}", [p.grad for p in params]
    optimizer2 = answer([torch.nn.Parameter(matrix.clone())], **rules)
    (p,), group = optimizer2.param_groups[0]["params"], optimizer2.param_groups[0]
    for trust, momentum in ((0.2, 0.8), (0.05, 0.5), (0.3, 0.1)):
        group.update(trust=trust, momentum=momentum)
        p.grad = steps[1][0].clone()
        optimizer2.step()
    yield "settings that change between steps", p.detach() - matrix
    yield "step() returns None", returned

    def closure():
        optimizer.zero_grad()
        loss = (w * steps[1][0]).sum()
        loss.backward()
        return loss

    yield "step(closure) returns the loss and computes gradients", optimizer.step(closure)
    yield "after step(closure)", w.detach() - matrix
    saved, copied = copy.deepcopy(optimizer.state_dict()), torch.nn.Parameter(w.detach().clone())
    resumed = answer([copied], lr=0.1)
    resumed.load_state_dict(saved)
    for p, o in ((w, optimizer), (copied, resumed)):
        p.grad = steps[2][0].clone()
        o.step()
    yield "a run goes on from a state_dict as if nothing had happened", bool(torch.isclose(w, copied).all())


@exercise(UNIT, apart=True)
def flushed_share(answer, device, seed):
    """What fp16 makes zero, and what it does not."""
    rng = torch.Generator().manual_seed(seed)

    def random(*shape):
        """Values of both signs over many powers of ten, a few of them exactly 0."""
        size = 10 ** (torch.rand(shape, generator=rng) * 9 - 11)
        values = torch.randn(shape, generator=rng) * size * (torch.rand(shape, generator=rng) < 0.9)
        return values.to(device)

    def tensor(*values):
        return torch.tensor(values, device=device)

    one = random(40 + seed % 9, 7).abs()
    one = one[one > 0]
    share = answer([one])
    yield "returns a number, no tensor", _number(share)
    yield "one tensor, all values above 0", share
    yield "negative values count by their size", answer([one, -one[: 50 + seed % 20]])
    several = [random(30 + seed % 5, 8), random(6), random(2, 3, 4) * 1e-3]
    yield "values that were 0 before do not count", answer([torch.cat((one, torch.zeros_like(one)))])
    yield "tensors of several sizes count value by value", answer(several)
    yield "with a loss scale of 1024", answer(several, 1024.0)
    yield "a tensor of shape () counts too", answer([tensor(1e-9)[0], tensor(1.0, 1.0)])
    yield "a loss scale below 1 loses more", answer(several, loss_scale=0.125)
    yield "the product is made in float32, before the cast", answer([tensor(1e-9, 1e-10, 2e-4)], 2.0**10)
    yield "a small value that fp16 can still hold is not lost", answer([tensor(2e-5, 1e-6, 2.0**-24, 1e-9)])
    yield "rounding: 2**-25 is lost, a little more is not", answer([tensor(2.0**-25, 1.01 * 2.0**-25, -(2.0**-25))])
    yield "a value that overflows is not lost to zero", answer([tensor(1e-9, 1e6, -1e6)])
    yield "one single value, lost", answer([tensor(0.0, 1e-9)])
    yield "all values are zero", answer([tensor(0.0, 0.0), tensor(0.0)])


@exercise(UNIT, apart=True)
def largest_safe_scale(answer, device, seed):
    """The largest power of two, up to the edge and beyond it."""
    rng = torch.Generator().manual_seed(seed)

    def random(*shape, peak):
        """Values up to `peak` in magnitude, the largest of them positive."""
        values = torch.rand(shape, generator=rng) - 0.5
        values.view(-1)[1] = 1.0
        return (values * peak).to(device)

    def times(limit, step):
        """The float32 value `limit`, moved by `step` units in its last place."""
        value = torch.tensor([limit])
        return torch.nextafter(value, torch.tensor([step * 1e9])).to(device) if step else value.to(device)

    peaks = [10 ** (-5 * x) for x in torch.rand(6, generator=rng).tolist()]
    first = answer([random(5 + seed % 4, 3, peak=peaks[0])])
    yield "returns a number, no tensor", _number(first)
    yield "is a power of two", first > 0 and float(first).hex().startswith("0x1.0000000000000p")
    yield "one tensor", first
    yield "five other tensors", _each("tensor", [answer([random(9, peak=peak)]) for peak in peaks[1:]])
    yield "gradients small as 1e-9", answer([random(4, peak=1e-9)])
    yield "the largest magnitude is that of a negative value", answer([-random(7, peak=peaks[1]) * 3])
    several = [random(3, 4, peak=1e-4), random(6, peak=0.03), random(5, peak=1e-6)]
    yield (
        "the largest value counts, in whichever tensor it is",
        {
            "three tensors": answer(several),
            "without the first": answer(several[1:]),
            "in reverse order": answer(several[::-1]),
        },
    )
    yield (
        "no headroom, and a headroom of 64",
        {"headroom 1": answer(several, 1.0), "64": answer(several, headroom=64.0)},
    )
    odd = {f"headroom {h:g}": answer(several, headroom=h) for h in (3.0, 5.0, 7.0, 1.1)}
    yield "a headroom that is no power of two", odd
    yield "just as large as allowed", answer([times(65504.0 / 2**9, 0)])
    yield "a hair above that", answer([times(65504.0 / 2**9, 1)])
    yield "a hair below that", answer([times(65504.0 / 2**9, -1)])
    yield "gradients small as 1e-30", answer([random(4, peak=1e-30)])
    yield "gradients that are too large get a scale below 1", answer([random(8, peak=3e6)])
    yield "all gradients are zero", answer([torch.zeros(3, device=device), torch.zeros(2, 2, device=device)])


class _CountingSGD(torch.optim.SGD):
    """SGD that counts its steps."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.steps = 0

    def step(self, closure=None):
        self.steps += 1
        return super().step(closure)


class _NoStep(torch.optim.Optimizer):
    """An optimizer whose step does nothing, for counting thousands of them."""

    def step(self, closure=None):
        return None


@exercise(UNIT, forbids=("torch.amp.GradScaler",))
def LossScaler(answer, device, seed):
    """The life of a dynamic loss scale."""
    rng = torch.Generator().manual_seed(seed)
    start = 2.0 ** (6 + seed % 5)
    weights = [torch.randn(2 + seed % 4, 3, generator=rng).to(device) for _ in range(3)]
    gradients = [torch.randn(w.shape, generator=rng).to(device) for w in weights]

    def scale_of(scaler):
        return float(scaler.scale(torch.ones((), device=device)))

    def fresh(**settings):
        """(scaler, parameters, optimizer in two groups)"""
        params = [torch.nn.Parameter(w.clone()) for w in weights]
        optimizer = _CountingSGD([{"params": params[:2]}, {"params": params[2:], "lr": 0.5}], lr=0.1, momentum=0.9)
        return answer(**({"init_scale": start} | settings)), params, optimizer

    def backward(scaler, params, bad=None, at=-1):
        """Gradients as a backward pass of the scaled loss leaves them; `bad` stands in one value of parameter `at`."""
        for p, g in zip(params, gradients, strict=True):
            p.grad = scaler.scale(g).detach().clone()
        if bad is not None:
            params[at].grad[-1, -1] = bad

    def run(steps, **settings):
        """What step returned and the scale after each update, for a row of good (1) and bad (0) steps."""
        scaler, params, optimizer = fresh(**settings)
        seen = {}
        for i, good in enumerate(steps, 1):
            backward(scaler, params, None if good else float("inf"))
            stepped = scaler.step(optimizer)
            scaler.update()
            seen |= {f"round {i}: stepped": stepped, f"round {i}: scale": scale_of(scaler)}
        return seen

    def again(scaler, optimizer):
        try:
            scaler.unscale_(optimizer)
        except RuntimeError:  # as torch.amp.GradScaler does
            pass

    loss = torch.tensor(1.25 + seed % 3, device=device)
    x = gradients[0].clone().requires_grad_()
    scaler = answer(init_scale=start)
    scaled = scaler.scale(loss)
    yield "scale returns the loss times the scale", scaled
    yield "the first scale is 2**16 unless told otherwise", scale_of(answer())
    (slope,) = torch.autograd.grad(scaler.scale((x**2).sum()), x)
    yield "the scaled loss has scaled gradients", slope

    def each(params, gradients=False):
        """The parameters, or their gradients, under names."""
        if gradients:
            return _each("gradient", [p.grad for p in params])
        return _each("parameter", [p.detach() for p in params])

    scaler, params, optimizer = fresh()
    backward(scaler, params)
    given = [p.grad for p in params]
    scaler.unscale_(optimizer)
    yield "unscale_ divides every gradient by the scale", each(params, gradients=True)
    yield "in place: p.grad is still the same tensor", all(p.grad is g for p, g in zip(params, given, strict=True))
    again(scaler, optimizer)
    yield "a second unscale_ does not divide again", each(params, gradients=True)
    stepped = scaler.step(optimizer)
    yield "step after unscale_ does not divide again", each(params)
    yield "step returns True when it stepped", stepped
    yield "step calls optimizer.step once", optimizer.steps
    scaler.update()
    backward(scaler, params)
    scaler.step(optimizer)
    yield "step without unscale_ divides first, also in the next round", each(params)
    yield "and so leaves true gradients behind", each(params, gradients=True)
    scaler, params, optimizer = fresh()
    backward(scaler, params)
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(params, 0.5)
    scaler.step(optimizer)
    yield "clipping between unscale_ and step sees true gradients", each(params)
    scaler, params, optimizer = fresh()
    backward(scaler, params)
    params[1].grad = None
    stepped = scaler.step(optimizer)
    yield "a parameter without a gradient is no obstacle", {"stepped": stepped} | each(params)

    for text, bad, at in (
        ("an inf skips the step", float("inf"), 0),
        ("a -inf skips the step", -float("inf"), 1),
        ("a nan skips the step", float("nan"), 0),
        ("an inf in the last value of the last group skips the step", float("inf"), -1),
    ):
        scaler, params, optimizer = fresh()
        backward(scaler, params, bad, at)
        stepped = scaler.step(optimizer)
        yield f"{text}: it returns False", stepped
        yield f"{text}: optimizer.step is not called", optimizer.steps
    for text, hide in (
        ("an overflow stays noted when clipping hides it", lambda g: g.nan_to_num_(0.0, 1.0, -1.0)),
        ("clipping alone makes no overflow", lambda g: g.clamp_(-0.5, 0.5)),
    ):
        scaler, params, optimizer = fresh()
        backward(scaler, params, float("inf") if "hides" in text else None)
        scaler.unscale_(optimizer)
        for p in params:
            hide(p.grad)
        yield text, scaler.step(optimizer)
    yield "a bad step halves the scale, a good one follows", run([1, 0, 1, 0, 0, 1])
    yield "the scale doubles after growth_interval good steps", run([1, 1, 1, 1, 1, 1, 1], growth_interval=3)
    yield "a bad step sets the count of good ones back", run([1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1], growth_interval=3)
    yield "the scale may fall below 1", run([0] * 9, init_scale=16.0)
    yield "the scale may rise above 2**16", run([1] * 3, init_scale=2.0**16, growth_interval=1)
    yield "growth_interval=1", run([1, 1, 0, 1], growth_interval=1)
    yield "growth and backoff of your choice", run([1, 1, 0, 1, 1, 0], growth=4.0, backoff=0.125, growth_interval=2)
    scaler, params, optimizer = fresh()
    backward(scaler, params, float("inf"))
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    backward(scaler, params)
    scaler.unscale_(optimizer)
    yield "after a bad step gradients are unscaled again", each(params, gradients=True)

    param = torch.nn.Parameter(torch.zeros(1, device=device))
    param.grad = torch.ones_like(param)
    scaler, optimizer, scales = answer(init_scale=8.0), _NoStep([param], {}), {}
    for i in range(1, 2002):
        scaler.step(optimizer)
        scaler.update()
        if i in (1999, 2000, 2001):
            scales[f"scale after {i} rounds"] = scale_of(scaler)
    yield "growth_interval is 2000 unless told otherwise", scales


class _SpyModel(torch.nn.Module):
    """A small recommender that writes down how it was called."""

    def __init__(self, rng, device, n_users=9, n_items=8, inf=False):
        super().__init__()

        def random(*shape):
            return torch.nn.Parameter(torch.randn(shape, generator=rng).to(device))

        self.user, self.item, self.mix, self.unused = random(n_users, 4), random(n_items, 4), random(5, 8), random(3)
        self.kind, self.inf = device.type, inf
        self.rows, self.batches, self.autocast, self.dtypes, self.fed = [], [], [], [], []
        self.backward_autocast, self.slopes = [], []

    def forward(self, users, items):
        self.rows.append(len(users))
        self.batches.append(torch.stack((users, items)))
        self.autocast.append(torch.is_autocast_enabled(self.kind))
        self.dtypes.append(str(torch.get_autocast_dtype(self.kind)))
        self.fed.append(len(self.slopes) == len(self.rows) - 1)  # were all parts before through their backward pass?
        x = torch.cat((self.user[users], self.item[items]), 1)
        logits = torch.nn.functional.linear(x, self.mix).relu().sum(1) - 1.0
        if logits.requires_grad:
            logits.register_hook(self._look)
        return logits

    def _look(self, slope):
        self.backward_autocast.append(torch.is_autocast_enabled(self.kind))
        self.slopes.append(slope.detach().float())
        return slope * float("inf") if self.inf else None


def _batch(rng, device, n):
    users, items = torch.randint(9, (n,), generator=rng), torch.randint(8, (n,), generator=rng)
    labels = torch.rand(n, generator=rng).round()
    return users.to(device), items.to(device), labels.to(device)


def _stale(model):
    """Gradients of an earlier batch, for every parameter."""
    for p in model.parameters():
        p.grad = torch.full_like(p, 3.0)


def _kind(result):
    """What a returned loss is, as plain data."""
    if not isinstance(result, torch.Tensor):
        return dict.fromkeys(("type", "dtype", "shape", "device", "requires_grad"), type(result).__name__)
    return {"type": "Tensor"} | _form(result) | {"requires_grad": result.requires_grad}


def _weights(model):
    """The parameters that the model uses."""
    return {f"model.{name}": getattr(model, name).detach() for name in ("user", "item", "mix")}


@exercise(UNIT)
def amp_step(answer, device, seed):
    """One training step in mixed precision, watched from the model and from the scaler."""
    n = 24 + seed % 9

    def run(steps=1, enabled=True, inf=False, stale=False):
        """(what the last step returned, model, optimizer, scaler) after some steps."""
        rng = torch.Generator().manual_seed(seed)
        model = _SpyModel(rng, device, inf=inf)
        optimizer = _CountingSGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=0.1)
        scaler = torch.amp.GradScaler(device.type, init_scale=2.0**6, growth_interval=2, enabled=enabled)
        loss = None
        for _ in range(steps):
            if stale:
                _stale(model)
            batch = _batch(rng, device, n)
            loss = answer(model, *batch, optimizer, scaler=scaler)
        return loss, model, optimizer, scaler

    loss, model, optimizer, scaler = run(enabled=device.type == "cuda")
    yield "returns the loss as a detached float32 scalar", _kind(loss)
    yield "the model runs once, on the whole batch", {"calls": len(model.rows), "rows": sum(model.rows)}
    yield "the model runs under autocast", all(model.autocast)
    yield "in fp16 on CUDA, in bf16 on the CPU", " ".join(model.dtypes)
    backward = {"times": len(model.backward_autocast), "under autocast": any(model.backward_autocast)}
    yield "the backward pass runs once, outside autocast", backward
    yield "the optimizer steps once", optimizer.steps
    yield "the loss is computed from float32 logits", loss
    yield "the parameters after one step", _weights(model)
    loss, model, optimizer, scaler = run()
    yield "with an enabled scaler, the backward pass sees the scaled loss", torch.cat(model.slopes).norm()
    yield "the loss that is returned is not scaled", loss
    yield "with an enabled scaler, the parameters after one step", _weights(model)
    loss, model, optimizer, scaler = run(steps=3)
    yield "after three steps", {"loss": loss} | _weights(model)
    yield "the scaler is updated once a step, so that its scale can grow", scaler.get_scale()
    loss, model, optimizer, scaler = run(stale=True)
    yield "gradients of an earlier batch do not count", _weights(model)
    yield (
        "a parameter that the model does not use stays: its grad is None",
        bool((model.unused == run(0)[1].unused).all()),
    )
    _, model, optimizer, scaler = run(inf=True)
    yield "an overflow: no parameter changes", bool((model.mix == run(0, inf=True)[1].mix).all())
    yield "an overflow: the scale is halved", scaler.get_scale()


@exercise(UNIT)
def accumulated_step(answer, device, seed):
    """One update from several parts, against the update of the whole batch."""
    micro = 5 + seed % 3

    def run(n, steps=1, stale=False, part=micro):
        """(what the last step returned, model, optimizer) after some steps on batches of n rows."""
        rng = torch.Generator().manual_seed(seed)
        model, loss = _SpyModel(rng, device), None
        optimizer = _CountingSGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=0.1)
        for _ in range(steps):
            if stale:
                _stale(model)
            batch = _batch(rng, device, n)
            loss = answer(model, *batch, optimizer, micro_batch=part)
        return loss, model, optimizer, batch if steps else None

    loss, model, optimizer, batch = run(4 * micro)
    yield "returns the loss as a detached float32 scalar", _kind(loss)
    yield "no forward pass has more than micro_batch rows", max(model.rows) <= micro
    fed = model.fed
    yield "every row goes through the model once", _rows_once(model, batch)
    yield "no more forward passes than needed", len(model.rows)
    yield "the optimizer steps once", optimizer.steps
    yield "four equal parts: the loss is the mean over the batch", loss
    yield "four equal parts: the parameters after one step", _weights(model)
    loss, model, optimizer, batch = run(3 * micro + 2)
    yield "a smaller last part: every row goes through the model once", _rows_once(model, batch)
    yield "a smaller last part: the loss is the mean over the batch", loss
    yield "a smaller last part: the parameters after one step", _weights(model)
    yield "gradients of an earlier batch do not count", _weights(run(2 * micro, stale=True)[1])
    loss, model, optimizer, batch = run(2 * micro + 1, steps=3)
    yield "a last part of one row, three steps", {"loss": loss} | _weights(model)
    yield "each part has its backward pass before the next part begins", fed
    stays = bool((run(micro, stale=True)[1].unused == run(0, steps=0)[1].unused).all())
    yield "a parameter that the model does not use stays: its grad is None", stays
    for text, n, part in (
        ("micro_batch larger than the batch", micro - 1, micro),
        ("micro_batch just as large as the batch", micro, micro),
        ("micro_batch of one row", 4, 1),
    ):
        loss, model, optimizer, batch = run(n, part=part)
        yield f"{text}: forward passes", len(model.rows)
        yield f"{text}: the loss and the parameters", {"loss": loss} | _weights(model)


def _rows_once(model, batch):
    """True if the model saw every row of the batch exactly once, in whatever order."""
    pairs = [(t[0] * 1000 + t[1]).sort().values for t in (torch.cat(model.batches, 1), torch.stack(batch[:2]))]
    return torch.equal(*pairs)


def _optimizer_class(factor):
    """An optimizer class with w -= lr * factor(w, g, step) * g, step counted from 1; takes params and lr only."""

    class Optimizer(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})
            self.steps = 0

        @torch.no_grad()
        def step(self, closure=None):
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            self.steps += 1
            for group in self.param_groups:
                for w in group["params"]:
                    if w.grad is not None:
                        w -= group["lr"] * factor(w, w.grad, self.steps) * w.grad
            return loss

    return Optimizer


@exercise(UNIT)
def shows_frozen_bias(answer, device, seed):
    """The learner's experiment, tried on optimizers that we know."""
    trust = 10.0 ** -(2 + seed % 3)

    def ratio(w, g):
        return trust * w.norm() / g.norm()

    verdict = answer(torch.optim.SGD)
    yield "returns a bool", type(verdict).__name__
    yield "plain SGD moves a bias", verdict
    yield "nothing ever moves: it shows", answer(_optimizer_class(lambda w, g, step: 0.0))
    yield "LARS without a guard: a bias of zeros is frozen", answer(_optimizer_class(lambda w, g, step: ratio(w, g)))
    yield (
        "the same with weight decay in the ratio",
        answer(_optimizer_class(lambda w, g, step: trust * w.norm() / (g.norm() + 0.1 * w.norm()))),
    )
    guarded = _optimizer_class(lambda w, g, step: ratio(w, g) if w.any() else 1.0)
    yield "LARS with a guard moves it", answer(guarded)
    yield "what freezes only matrices is innocent", answer(_optimizer_class(lambda w, g, step: float(w.ndim < 2)))
    yield "what freezes only 1-D parameters is guilty", answer(_optimizer_class(lambda w, g, step: float(w.ndim != 1)))
    yield (
        "what freezes only parameters other than zero is innocent",
        answer(_optimizer_class(lambda w, g, step: float(not w.any()))),
    )
    first = _optimizer_class(lambda w, g, step: (torch.arange(w.numel(), device=w.device) == 0).reshape(w.shape) * 1.0)
    yield "what moves one element of the bias moves", answer(first)
    yield "what moves by a millionth moves", answer(_optimizer_class(lambda w, g, step: 1e-6))
    yield "what moves by a millionth of a millionth moves", answer(_optimizer_class(lambda w, g, step: 1e-12))
    yield (
        "what begins with three steps at rate 0 moves later",
        answer(_optimizer_class(lambda w, g, step: float(step > 3))),
    )
    yield "what moves at every fifth step only moves", answer(_optimizer_class(lambda w, g, step: float(step % 5 == 0)))
    yield "Adam moves a bias", answer(torch.optim.Adam)


@exercise(UNIT, apart=True)
def polynomial_decay(answer, device, seed):
    """The rate at the start, on the way, at the end and after it."""
    steps, lr = 8 + seed % 9, 0.3 + seed % 4

    def rates(first=0, end=3 * steps, **power):
        return _steps(answer, range(first, end), steps, lr, **power)

    first = answer(0, steps, lr)
    yield "returns a number, no tensor", _number(first)
    yield "step 0 has the full rate", first
    yield "half-way, with power 2", answer(steps, 2 * steps, lr)
    yield "every step of the schedule, with power 2", rates(end=steps)
    yield "max_steps has the rate 0", answer(steps, steps, lr)
    seen = list(rates().values())
    yield "the rate never rises again", all(a >= b for a, b in zip(seen[:-1], seen[1:], strict=True))
    yield "after the end the rate is 0", rates(steps)
    yield "and exactly 0", all(rate == 0 for rate in rates(steps).values())
    yield "power 1: a straight line, then 0", rates(power=1)
    yield "power 3: never below 0", rates(power=3)
    yield "power 0.5", rates(power=0.5)
    yield "a schedule of one step", _steps(answer, range(3), 1, lr)

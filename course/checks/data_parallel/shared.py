"""What several probes of unit 02_data_parallel use."""

import collections
import copy
import functools
import itertools
import threading
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from course import distributed
from course.checks.compare import plain
from course.distributed import Transfers, counted, run_ranks, wire_bytes

READY_MADE = ("torch.nn.DataParallel", "torch.nn.parallel")


COLLECTIVES = tuple(
    f"torch.distributed.{name}"
    for name in "broadcast reduce all_reduce gather all_gather scatter reduce_scatter all_to_all".split()
)


MEET = 2  # seconds in which replicas that run at the same time have found each other


def _ways(messages):
    """The way of each message, in words."""
    return [f"place {source} to place {target}" for source, target, _ in messages]


def _sizes(messages):
    return [size for _, _, size in messages]


class _Stamping(Transfers):
    """Adds 1 more than the place it goes to, to all that passes: what has not passed can be told from what has."""

    def send(self, tensors, source, target):
        return [copied + 1 + target for copied in super().send(tensors, source, target)]


class _Layers(nn.Module):
    """Two layers with one weight, a frozen parameter, and two buffers, one of which every call changes; row by row."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 4)
        self.outer.weight = self.inner.weight
        self.scale = nn.Parameter(torch.rand(4) + 0.5, requires_grad=False)
        self.register_buffer("shift", torch.randn(4), persistent=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.power = 2

    def forward(self, x):
        self.calls += 1
        return self.outer(torch.tanh(self.inner(x) * self.scale + self.shift) ** self.power)


def _module(device, seed):
    """A float64 module with a submodule in eval mode, which would be noticed in train mode."""
    torch.manual_seed(seed)
    module = nn.Sequential(_Layers(), nn.Dropout(0.5), nn.Linear(4, 3)).double().to(device)
    module[1].eval()
    return module


def _bytes(module):
    """Bytes of all parameters and buffers, each once."""
    return sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))


def _state(module):
    """Whether a module is still what it was: its tensors themselves, their values and gradients."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return [(name, id(t), t.detach().clone(), None if t.grad is None else t.grad.clone()) for name, t in tensors]


def _same_state(module, before):
    now = _state(module)
    return [n[:2] for n in now] == [b[:2] for b in before] and all(
        torch.equal(n[2], b[2]) and (n[3] is b[3] is None or torch.equal(n[3], b[3]))
        for n, b in zip(now, before, strict=True)
    )


def _alone(module, batch, loss):
    """(outputs, gradients by name) of a copy of `module` that gets the batch in one piece."""
    module = copy.deepcopy(module)
    module.zero_grad()
    outputs = module(batch)
    loss(outputs).backward()
    return outputs.detach(), {n: p.grad for n, p in module.named_parameters() if p.requires_grad}


def _gradients(module):
    """{name: gradient} of what is not frozen; a string where there is none."""
    named = [(name, p.grad) for name, p in module.named_parameters() if p.requires_grad]
    return {name: "no gradient" if grad is None else grad for name, grad in named}


def _equal(seen, alone):
    """True if two tensors, or dicts of tensors, are the same but for rounding."""
    if isinstance(alone, dict):
        return seen.keys() == alone.keys() and all(_equal(seen[name], alone[name]) for name in alone)
    return isinstance(seen, torch.Tensor) and seen.shape == alone.shape and torch.allclose(seen, alone)


class _Meeting:
    """Functions of one argument that know whether all of them run at the same time, and end last first."""

    def __init__(self, n):
        self.barrier, self.met = threading.Barrier(n), []
        self.ended = [threading.Event() for _ in range(n)]
        self.replicas = [functools.partial(self._run, place) for place in range(n)]

    def _run(self, place, part):
        try:
            self.barrier.wait(MEET)
            met = True
            if place + 1 < len(self.ended):
                met = self.ended[place + 1].wait(MEET)
                time.sleep(0.01)  # the other is on its way out
        except threading.BrokenBarrierError:
            met = False
        self.met.append(met)
        self.ended[place].set()
        return part


def _new_threads(before):
    """How many threads there are that were not there before; one that is about to end is waited for."""
    until = time.monotonic() + 1
    while (new := len(set(threading.enumerate()) - before)) and time.monotonic() < until:
        time.sleep(0.01)
    return new


HANG = 8  # seconds after which ranks that wait for each other are ended


class _Wire:
    """Stands before a process group: `log` holds (send or recv, the other rank or None for any, bytes), in order."""

    def __init__(self, group):
        self.group, self.log, self.works = group, [], []

    def __getattr__(self, name):
        return getattr(self.group, name)

    def send(self, tensors, to, tag):
        return self._noted("send", to, tensors, self.group.send, tensors, to, tag)

    def recv(self, tensors, source, tag):
        return self._noted("recv", source, tensors, self.group.recv, tensors, source, tag)

    def recv_anysource(self, tensors, tag):
        return self._noted("recv", None, tensors, self.group.recv_anysource, tensors, tag)

    def _noted(self, kind, other, tensors, operation, *args):
        rank, n = self.group.rank(), self.group.size()
        if other is not None and (other == rank or not 0 <= other < n):  # gloo would wait for ever
            way = "sends to" if kind == "send" else "receives from"
            raise ValueError(f"rank {rank} {way} rank {other}, of ranks 0 to {n - 1}. Count modulo the world size.")
        self.log.append((kind, other, sum(t.nbytes for t in tensors)))
        self.works.append(operation(*args))  # kept: a request that is forgotten may lose its message
        return self.works[-1]


def _calls(rank, world_size, answer, cases):
    """What `answer` did in this rank, case by case."""
    calls = []
    for case, (tensors, view, args) in cases.items():
        try:
            calls.append(_call(answer, tensors[rank].clone(), view, args))
        except Exception as error:
            if error.args:
                error.args = (f"{error} (in the case {case})",)
            raise
    return calls


def _call(answer, whole, view, args):
    with distributed.counted() as traffic:
        counting = dist.group.WORLD
        counting.inner = wire = _Wire(counting.inner)
        answer(view(whole), *args)
    dist.barrier()  # a rank that waits here has returned from your function
    operations = {operation for operation, _ in traffic}
    forgotten = sum(not work.is_completed() for work in wire.works)  # with gloo it is wait that completes a work
    return SimpleNamespace(whole=whole, log=wire.log, operations=operations, forgotten=forgotten)


def _on_ranks(answer, world_size, cases):
    """{case: what the call did in each rank}, a list.  A case is (a tensor for each rank, view, further arguments)."""
    answers = distributed.run_ranks(_calls, world_size, answer, cases, backend="gloo", timeout=HANG)  # [rank][case]
    return dict(zip(cases, zip(*answers, strict=True), strict=True))


def _itself(tensor):
    return tensor


def _rooted(answer, seed, word, sizes=(2, 3, 4)):
    """For each number of ranks: it, and what `answer(tensor, root)` did; up to 4 ranks each is the root once."""
    rng = torch.Generator().manual_seed(seed)
    for n in sizes:
        roots = range(n) if n <= 4 else [seed % n]
        cases = {f"{word}={root}": (torch.randn(n, 3 + seed % 5, generator=rng), root) for root in roots}
        root = (seed + 1) % n
        cases[f"{word}={root}, int32, two rows"] = (
            torch.randint(1000, (n, 2, 4), generator=rng, dtype=torch.int32),
            root,
        )
        cases = {case: (tensors, _itself, (root,)) for case, (tensors, root) in cases.items()}
        yield n, [root for *_, (root,) in cases.values()], _on_ranks(answer, n, cases)


def _sent(*calls):
    """The messages that some ranks send, in words."""
    sizes = [size for call in calls for kind, _, size in call.log if kind == "send"]
    return f"{len(sizes)} messages, {sum(sizes)} bytes"


def _manners(n, did):
    """The facts on messages that every collective has."""
    calls = [call for calls in did.values() for call in calls]
    yield f"{n} ranks: only send and recv are used", sorted(set().union(*(call.operations for call in calls)))
    yield f"{n} ranks: every isend and irecv is waited for", not any(call.forgotten for call in calls)


def _rounds(calls):
    """Rounds in which the messages go if a rank has one message at a time, in the order of its code."""
    left, clock = [list(call.log) for call in calls], [0] * len(calls)
    while any(left):
        first = [log[0] if log else ("", None, 0) for log in left]
        ready = [
            (sender, receiver)
            for sender, (kind, receiver, _) in enumerate(first)
            if kind == "send" and first[receiver][0] == "recv" and first[receiver][1] in (sender, None)
        ]
        if not ready:
            return "they do not fit together"
        pair = min(ready, key=lambda pair: max(clock[rank] for rank in pair))
        now = 1 + max(clock[rank] for rank in pair)
        for rank in pair:
            clock[rank] = now
            left[rank].pop(0)
    return max(clock)


def _longest_way(calls):
    """The most messages that come one after the other because each starts where the one before ended."""
    edges = {(rank, to) for rank, call in enumerate(calls) for kind, to, _ in call.log if kind == "send"}
    reached, length = {to for _, to in edges}, 0
    while reached and length <= len(calls):  # messages in a circle have no end
        reached, length = {to for rank, to in edges if rank in reached}, length + 1
    return length


def _tree(n, did):
    """The facts on messages that both trees have."""
    yield from _manners(n, did)
    yield (
        f"{n} ranks: one message less than there are ranks, each the whole tensor",
        {case: _sent(*calls) for case, calls in did.items()},
    )
    depth = (n - 1).bit_length()
    busiest = max(len(call.log) for calls in did.values() for call in calls)
    yield f"{n} ranks: no rank has a part in more than {depth} of the messages", busiest <= depth
    longest = max(map(_longest_way, did.values()))
    yield f"{n} ranks: no way along the messages is longer than {depth}", longest <= depth
    yield f"{n} ranks: how many rounds it takes", {case: _rounds(calls) for case, calls in did.items()}


def _held(did):
    return {f"{case}, rank {rank}": call.whole for case, calls in did.items() for rank, call in enumerate(calls)}


def _at_dst(roots, did):
    return {case: calls[root].whole for root, (case, calls) in zip(roots, did.items(), strict=True)}


def _elsewhere(roots, did):
    return {
        f"{case}, rank {rank}": call.whole
        for root, (case, calls) in zip(roots, did.items(), strict=True)
        for rank, call in enumerate(calls)
        if rank != root
    }


STEPS = 5


class _Net(nn.Module):
    """A small float64 model with all that a wrapper must send: weights, a scalar, frozen parameters, buffers."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv1d(1, 3, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(()))
        self.frozen = nn.Linear(18, 18).requires_grad_(False)
        self.head = nn.Linear(18, 2)
        self.register_buffer("shift", torch.randn(18))
        self.register_buffer("version", torch.tensor(seed))
        self.register_buffer("table", torch.randn(2), persistent=False)
        self.double()

    def forward(self, inputs, gain=1.0):  # inputs: (n, 6)
        hidden = torch.tanh(self.conv(inputs.unsqueeze(1)).flatten(1) + self.shift)
        return gain * self.head(torch.tanh(self.frozen(hidden * self.scale))) + self.table


class _Tied(nn.Module):
    """Two layers that share their weight."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.encoder, self.decoder = nn.Linear(6, 6).double(), nn.Linear(6, 6).double()
        self.decoder.weight = self.encoder.weight

    def forward(self, inputs):
        return self.decoder(torch.tanh(self.encoder(inputs)))


class _Branches(nn.Module):
    """Layers of one size, of which each call uses those it names, in the order in which it names them."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.ModuleDict({name: nn.Linear(6, 6).double() for name in "abcd"})

    def forward(self, inputs, names):
        for name in names:
            inputs = torch.tanh(self.layers[name](inputs))
        return inputs


def _batches(rank, world_size, seed, outputs=2):
    """STEPS batches (inputs, targets), whole, and those parts of them that belong to the rank."""
    rng = torch.Generator().manual_seed(seed)
    whole = [
        tuple(torch.randn(4 * world_size, n, generator=rng, dtype=torch.float64) for n in (6, outputs))
        for _ in range(STEPS)
    ]
    return whole, [tuple(part.chunk(world_size)[rank] for part in batch) for batch in whole]


def _backward(model, batch, *args):
    """None; the loss of a batch, backward, and whatever the wrapper wants to be called then."""
    F.mse_loss(model(batch[0], *args), batch[1]).backward()
    getattr(model, "average_gradients", lambda: None)()


def _trained(model, module, batches, set_to_none=True):
    """The parameters of `module` in one vector after SGD with momentum on `model`, which is it or wraps it."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for batch in batches:
        optimizer.zero_grad(set_to_none=set_to_none)
        _backward(model, batch)
        optimizer.step()
    return _vector(module.parameters())


def _vector(tensors):
    return torch.cat([t.detach().flatten().double() for t in tensors])


def _trainable_gradients(module):
    """{name: gradient or None} of the trainable parameters."""
    return {name: p.grad for name, p in module.named_parameters() if p.requires_grad}


def _copied(gradients):
    return {name: None if g is None else g.clone() for name, g in gradients.items()}


def _close(seen, expected):
    return torch.allclose(seen, expected, rtol=1e-9, atol=1e-12)


def _ids(tensors):
    return [id(t) for t in tensors]


def _together(answers):
    """(fact, {rank: what came of it there}) for each fact; `answers` are the dicts of the ranks."""
    for fact in answers[0]:
        yield fact, {f"rank {rank}": facts[fact] for rank, facts in enumerate(answers)}


def _same_bits(answers, fact):
    return all(torch.equal(facts[fact], answers[0][fact]) for facts in answers)


def _made(rank, world_size, answer, seed):
    """Facts of a rank about a wrapper that has just been made; the ranks' modules differ before."""
    module, right, (batch, *_) = _Net(seed + rank), _Net(seed), _batches(rank, world_size, seed)[1]
    before = _ids(itertools.chain(module.parameters(), module.buffers()))
    with counted() as traffic:
        model = answer(module)
        facts = {
            "is an nn.Module": isinstance(model, nn.Module),
            "module is the module that was given": model.module is module,
            "its parameters are those of the module": _ids(model.parameters()) == _ids(module.parameters()),
            "they are the same objects as before": before
            == _ids(itertools.chain(module.parameters(), module.buffers())),
            "has the trainable parameters of rank 0": _vector(p for p in module.parameters() if p.requires_grad),
            "has the frozen parameters of rank 0": _vector(module.frozen.parameters()),
            "has the buffers of rank 0": _vector([module.shift, module.version]),
            "has the buffers of rank 0 that are not persistent": module.table,
        }
        sent = len(traffic)
        facts["hands its arguments on to the module"] = _close(model(batch[0], gain=3.0), right(batch[0], gain=3.0))
        facts["a forward pass sends nothing"] = len(traffic) - sent
    return facts


def _training(rank, world_size, answer, seed):
    """Facts of a rank about gradients and weights in training."""
    whole, mine = _batches(rank, world_size, seed)
    module, start = _Net(seed + rank), _Net(seed)
    with counted() as traffic:
        model = answer(module)
        sent = len(traffic)
        _backward(model, mine[0])
        calls = [operation for operation, _ in traffic[sent:]]
        sizes = sorted(size for _, size in traffic[sent:])
    facts = {
        "the gradients after one backward": _copied(_trainable_gradients(module)),
        "a frozen parameter has no gradient": [p.grad for p in module.frozen.parameters()] == [None, None],
        "what one step sends": collections.Counter(calls),
        "the bytes of these calls": sizes,
    }
    module.zero_grad()
    facts["the weights after 5 SGD steps"] = _trained(model, module, mine)
    alone, torchs = copy.deepcopy(start), copy.deepcopy(start)
    alone_trained = _trained(alone, alone, whole)
    torchs_trained = _trained(DistributedDataParallel(torchs), torchs, mine)
    facts["one process with the whole batch gets the same"] = _close(_vector(module.parameters()), alone_trained)
    facts["torch's DistributedDataParallel gets the same"] = _close(_vector(module.parameters()), torchs_trained)

    module = _Net(seed + rank)
    seen = _trained(answer(module), module, mine, set_to_none=False)
    facts["a second model, with zero_grad(set_to_none=False)"] = seen
    module = _Net(seed + rank)
    model = answer(module)
    _backward(model, mine[0])
    _backward(model, mine[1])
    facts["a second backward adds its average to the first"] = _trainable_gradients(module)
    return facts


def _odd_models(rank, world_size, answer, seed):
    """Facts of a rank about tied parameters and about those that not every rank uses."""
    facts = {}
    _, (batch, again, *_) = _batches(rank, world_size, seed, outputs=6)
    with counted() as traffic:
        module = _Tied(seed + rank)
        model = answer(module)
        sent = len(traffic)
        _backward(model, batch)
        facts["the gradients where two layers share a weight"] = _trainable_gradients(module)
        facts["bytes sent: a shared weight travels once"] = sum(size for _, size in traffic[sent:])

    module = _Branches(seed + rank)
    model = answer(module)
    _backward(model, batch, ("a", "bc"[rank % 2]))
    seen = _copied(_trainable_gradients(module))
    kinds = {name[7]: [] for name in seen}
    for name, gradient in seen.items():
        kinds[name[7]].append(gradient)
    facts["a gradient that every rank has is averaged"] = kinds["a"]
    facts["a gradient that a rank lacks counts as zeros"] = kinds["b"] + kinds["c"]
    facts["a gradient that no rank has is zeros"] = kinds["d"]
    module.zero_grad()
    _backward(model, again, ("a", "cb"[rank % 2]))
    facts["the same after zero_grad, the other way round"] = _trainable_gradients(module)
    return facts


def _in_turn(rank, world_size, groups, answer, seed):
    """The facts of several groups of facts, found by one rank in one life."""
    facts = {}
    for group in groups:
        facts |= group(rank, world_size, answer, seed)
    return facts


def _wrapped(answer, seed, *groups):
    """The facts that hold for both wrappers, and those of `groups`, which two ranks find."""
    for some in ((_made,), (_training,), (_odd_models, *groups)):
        answers = run_ranks(_in_turn, 2, some, answer, seed, backend="gloo", timeout=HANG)
        yield from _together(answers)
        if _training in some:
            yield "ranks agree to the last bit", _same_bits(answers, "the weights after 5 SGD steps")
    answers = run_ranks(_training, 3, answer, seed + 1, backend="gloo", timeout=HANG)
    for fact, value in _together(answers):
        yield f"3 ranks: {fact}", value
    yield "3 ranks agree to the last bit", _same_bits(answers, "the weights after 5 SGD steps")


TIMEOUT = 8  # seconds for all ranks of a call


def _outcome(call):
    """(what `call()` returns, ""), or the name of the type of the exception that it raises, and its message."""
    try:
        return call(), ""
    except Exception as error:
        return type(error).__name__, str(error)


def _in_rank(rank, world_size, answer, inputs):
    """Of each call with one of `inputs`: [what came back, operations asked of the group, bytes sent]."""
    found = []
    for of_ranks in inputs:
        with counted() as traffic:
            before = wire_bytes()
            result = answer(*of_ranks[rank])
            sent = 0 if before is None else wire_bytes() - before
        found.append([plain(result), traffic.calls(), sent])
    return found


def _by_rank(answer, *inputs):
    """For each of `inputs`, itself a list of the arguments of each rank: the list of what `_in_rank` found."""
    found = run_ranks(_in_rank, len(inputs[0]), answer, inputs, backend="gloo", timeout=TIMEOUT)
    return list(zip(*found, strict=True))


def _named(values):
    return {f"rank {rank}": value for rank, value in enumerate(values)}


def _type_names(values):
    """The names of the types in a list, each once; of anything else its own."""
    return sorted({type(v).__name__ for v in values}) if isinstance(values, list) else type(values).__name__


def _micro_batches(rng, sizes, device):
    return [
        (torch.randn(n, 4, generator=rng).to(device), torch.randint(3, (n,), generator=rng).to(device)) for n in sizes
    ]


def _classifier(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def _weights(model):
    return [p.detach().cpu().clone() for p in model.parameters()]


def _all_close(these, those):
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(these, those, strict=True))

"""Right answers to the exercises of 02_data_parallel, written in other styles than the reference."""

import collections
import contextlib
import copy
import functools
import itertools
import math
import os
import tempfile
import threading
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path

import numpy
import numpy as np
import torch
import torch.distributed as dist
from torch import distributed, nn
from torch.autograd import Variable
from torch.distributed import ReduceOp, all_reduce, get_world_size
from torch.func import functional_call
from torch.nn import Module
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, Sampler

from course.checks.engine import alternative


@alternative("scatter")
def flattened_tree(batch, transfers):
    leaves, form = pytree.tree_flatten(batch)
    where = [i for i, leaf in enumerate(leaves) if torch.is_tensor(leaf)]
    cuts = [leaves[i].chunk(len(transfers.devices)) for i in where]
    parts = []
    for place in range(len(cuts[0])):
        part = list(leaves)
        for i, arrived in zip(where, transfers.send([cut[place] for cut in cuts], 0, place), strict=True):
            part[i] = arrived
        parts.append(pytree.tree_unflatten(part, form))
    return parts


def _rows(value, start, stop, found):
    """The rows from `start` to `stop` of all tensors, which are appended to `found`; an index stands for each."""
    if isinstance(value, torch.Tensor):
        index = len(found)
        found.append(value[start:stop])
        return lambda arrived: arrived[index]
    if isinstance(value, dict):
        makers = {key: _rows(item, start, stop, found) for key, item in value.items()}
        return lambda arrived: {key: make(arrived) for key, make in makers.items()}
    if type(value) in (tuple, list):
        makers = [_rows(item, start, stop, found) for item in value]
        return lambda arrived: type(value)(make(arrived) for make in makers)
    return lambda arrived: value


def _length(value):
    if isinstance(value, torch.Tensor):
        return value.size(0)
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return max(map(_length, items), default=0)


@alternative("scatter")
def slices_and_makers(batch, transfers):
    length = _length(batch)
    step = (length + len(transfers.devices) - 1) // len(transfers.devices)
    parts = []
    for place, start in enumerate(range(0, length, step)):
        found = []
        make = _rows(batch, start, start + step, found)
        parts.append(make(transfers.send(found, 0, place)))
    return parts


@alternative("replicate")
def attribute_by_attribute(module, transfers, n=None):
    """As torch does it: a shallow copy of each submodule, the copies as plain attributes, no parameters listed."""
    everything = list(dict.fromkeys([*module.parameters(), *module.buffers()]))
    replicas = []
    for place in list(range(len(transfers.devices)))[:n]:
        sent = dict(zip(everything, transfers.send(everything, 0, place), strict=True))
        twins = {original: original.__new__(type(original)) for original in module.modules()}
        for original, twin in twins.items():
            twin.__dict__ = original.__dict__ | {"_parameters": {}, "_buffers": dict(original._buffers)}
            twin._modules = {name: twins.get(child) for name, child in original._modules.items()}
            for name, buffer in original._buffers.items():
                twin._buffers[name] = sent.get(buffer)
            for name, parameter in original._parameters.items():
                object.__setattr__(twin, name, sent.get(parameter))
        replicas.append(twins[module])
    return replicas


@alternative("replicate")
def copies_put_in_by_name(module, transfers, n=None):
    def replica(place):
        new = copy.deepcopy(module)
        pairs = {}
        for old_part, new_part in zip(module.modules(), new.modules(), strict=True):
            for table in ("_parameters", "_buffers"):
                for name, tensor in getattr(old_part, table).items():
                    if tensor is not None:
                        pairs.setdefault(id(tensor), (tensor, []))[1].append((getattr(new_part, table), name))
        arrived = transfers.send([tensor for tensor, _ in pairs.values()], 0, place)
        for copied, (_, holders) in zip(arrived, pairs.values(), strict=True):
            for table, name in holders:
                table[name] = copied
        return new

    return [replica(place) for place in range(n or len(transfers.devices))]


def _modes():
    """A function that puts the calling thread into the modes that this one has now."""
    grad = torch.is_grad_enabled()
    casts = [(k, torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in ("cpu", "cuda")]

    def enter():
        torch.set_grad_enabled(grad)
        for kind, on, dtype in casts:
            torch.set_autocast_enabled(kind, on)
            torch.set_autocast_dtype(kind, dtype)

    return enter


@alternative("parallel_apply")
def bare_threads(replicas, parts):
    if len(replicas) != len(parts):
        raise ValueError(f"{len(replicas)} replicas, {len(parts)} parts")
    enter, results, errors = _modes(), {}, {}

    def work(place):
        enter()
        try:
            results[place] = replicas[place](parts[place])
        except BaseException as error:
            errors[place] = error

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for place in sorted(errors):
        errors[place].add_note(f"raised in a thread, at place {place} of {len(parts)}")
        raise errors[place]
    return [results[place] for place in range(len(parts))]


@alternative("parallel_apply")
def a_pool_that_enters_once(replicas, parts):
    def work(place, replica, part):
        try:
            return replica(part)
        except Exception as error:
            error.args = (f"place {place}: {error}",)
            raise

    tasks = list(zip(itertools.count(), replicas, parts, strict=False))
    if not len(tasks) == len(replicas) == len(parts):
        raise ValueError("as many parts as replicas")
    pool = futures.ThreadPoolExecutor(max_workers=2 * len(tasks), initializer=_modes())
    calls = [pool.submit(work, *task) for task in tasks]
    futures.wait(calls)
    pool.shutdown()
    return [call.result() for call in calls]


@alternative("gather")
def filled_in(outputs, transfers):
    arrived = collections.deque()
    for place in reversed(range(len(outputs))):
        arrived.extendleft(transfers.send(outputs[place : place + 1], place, 0))
    return (
        torch.stack(list(arrived))
        if arrived[0].ndim == 0
        else torch.vstack(list(arrived))
        if (arrived[0].ndim > 1)
        else torch.hstack(list(arrived))
    )


@alternative("gather")
def one_after_the_other(outputs, transfers):
    whole = None
    for place, output in enumerate(outputs):
        (output,) = transfers.send([output if output.shape else output.reshape(1)], place, 0)
        whole = output if whole is None else torch.cat((whole, output))
    return whole


@alternative("data_parallel")
def steps_of_others(module, batch, transfers):
    parts = slices_and_makers(batch, transfers)
    return filled_in(bare_threads(attribute_by_attribute(module, transfers, len(parts)), parts), transfers)


@alternative("data_parallel")
def a_module_object_for_each_thread(module, batch, transfers):
    parts = flattened_tree(batch, transfers)
    named = dict(itertools.chain(module.named_parameters(), module.named_buffers()))
    enter, outputs = _modes(), [None] * len(parts)

    def work(place, own, tensors):
        enter()
        outputs[place] = functional_call(own, tensors, (parts[place],))

    threads = []
    for place in range(len(parts)):
        tensors = dict(zip(named, transfers.send(list(named.values()), 0, place), strict=True))
        threads.append(threading.Thread(target=work, args=(place, copy.deepcopy(module), tensors)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return one_after_the_other(outputs, transfers)


@alternative("data_parallel_gradients")
def functional_calls(module, batch, targets, loss_fn, transfers):
    everything = dict([*module.named_parameters(), *module.named_buffers()])
    trained = [name for name, tensor in everything.items() if tensor.requires_grad]
    parts = [transfers.send([p], 0, k).pop() for k, p in enumerate(batch.chunk(len(transfers.devices)))]
    with torch.no_grad():
        states = [transfers.send(list(everything.values()), 0, k) for k, _ in enumerate(parts)]
    states = [dict(zip(everything, state, strict=True)) for state in states]
    for state, name in itertools.product(states, trained):
        state[name] = state[name].detach().requires_grad_()
    results = [functional_call(module, state, (part,)) for state, part in zip(states, parts, strict=True)]
    whole = torch.cat([transfers.send([r.detach()], k, 0).pop() for k, r in enumerate(results)]).requires_grad_()
    loss = loss_fn(whole, targets)
    (wanted,) = torch.autograd.grad(loss, [whole])
    wanted = [transfers.send([w], 0, k).pop() for k, w in enumerate(wanted.chunk(len(transfers.devices)))]
    back = [
        torch.autograd.grad([result], [state[name] for name in trained], [pull])
        for result, state, pull in zip(results, states, wanted, strict=True)
    ]
    total = [0] * len(trained)
    for k, gradients in enumerate(back):
        arrived = transfers.send(gradients, k, 0)
        total = [a + b for a, b in zip(total, arrived, strict=True)]
    return loss.detach(), dict(zip(trained, total, strict=True))


@alternative("data_parallel_gradients")
def backward_in_each_replica(module, batch, targets, loss_fn, transfers):
    places = range(len(batch.chunk(len(transfers.devices))))
    inputs = [transfers.send([batch.chunk(len(transfers.devices))[k]], 0, k)[0].detach() for k in places]
    replicas = []
    for k in places:
        copies = iter(transfers.send([*module.parameters(), *module.buffers()], 0, k))
        replica = copy.deepcopy(module).requires_grad_(False)
        replica.zero_grad()
        for parameter, original in zip(replica.parameters(), module.parameters(), strict=True):
            parameter.data = next(copies).data
            parameter.requires_grad = original.requires_grad
        for buffer in replica.buffers():
            buffer.copy_(next(copies))
        replicas.append(replica)
    outputs = [replica(part) for replica, part in zip(replicas, inputs, strict=True)]
    whole = torch.cat([transfers.send([outputs[k].data], k, 0)[0] for k in places])
    whole.requires_grad = True
    loss = loss_fn(whole, targets)
    loss.backward()
    stops = list(itertools.accumulate((len(output) for output in outputs), initial=0))
    sent = [transfers.send([whole.grad[stops[k] : stops[k + 1]]], 0, k)[0] for k in places]
    for k in places:
        outputs[k].backward(sent[k])
    gradients = {}
    for k in places:
        named = {name: p.grad for name, p in replicas[k].named_parameters() if p.grad is not None}
        for name, gradient in zip(named, transfers.send(list(named.values()), k, 0), strict=True):
            gradients[name] = gradients[name] + gradient if name in gradients else gradient
    return loss.detach().clone(), gradients


@alternative("data_parallel_messages")
def listed_messages(n_devices, parameter_bytes, batch_bytes, output_bytes):
    output = output_bytes // n_devices
    steps = {"forward": [batch_bytes // n_devices, parameter_bytes, output], "backward": [output, parameter_bytes]}
    found = {}
    for way, sizes in steps.items():
        messages = [(place, size) for place in range(n_devices) for size in sizes]
        crossing = [size for place, size in messages if place]
        found[f"{way}_messages"] = len(messages)
        found[f"{way}_crossing"] = len(crossing)
        found[f"{way}_bytes"] = sum(crossing)
    return found


@alternative("data_parallel_messages")
def from_all_to_others(n_devices, parameter_bytes, batch_bytes, output_bytes):
    m = n_devices
    both = m * parameter_bytes + output_bytes - parameter_bytes - output_bytes // m
    return dict(
        backward_bytes=both,
        backward_crossing=m + m - 2,
        backward_messages=m + m,
        forward_bytes=both + batch_bytes - batch_bytes // m,
        forward_crossing=3 * m - 3,
        forward_messages=3 * m,
    )


@alternative("broadcast_naive")
def all_at_once(tensor, src):
    if dist.get_rank() == src:
        requests = [dist.isend(tensor, other) for other in range(dist.get_world_size()) if other != src]
        while requests:
            requests.pop().wait()
    else:
        dist.irecv(tensor, src).wait()
    return tensor


@alternative("broadcast_naive")
def backwards_from_anybody(tensor, src):
    n = dist.get_world_size()
    if dist.get_rank() != src:
        return dist.recv(tensor)
    for step in range(1, n):
        dist.send(tensor.clone(), (src - step) % n)


@alternative("broadcast_naive")
def list_of_operations(tensor, src):
    if dist.get_rank() == src:
        operations = [dist.P2POp(dist.isend, tensor, r) for r in range(dist.get_world_size()) if r != src]
    else:
        operations = [dist.P2POp(dist.irecv, tensor, src)]
    for request in dist.batch_isend_irecv(operations):
        request.wait()


@alternative("reduce_naive")
def first_come_first_added(tensor, dst):
    if dist.get_rank() == dst:
        for _ in range(dist.get_world_size() - 1):
            part = torch.zeros_like(tensor)
            dist.recv(part)
            tensor.add_(part)
        return
    dist.send(tensor, dst=dst)


@alternative("reduce_naive")
def table_of_all(tensor, dst):
    rank, n = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.isend(tensor, dst).wait()
        return tensor
    table = tensor.new_zeros((n, *tensor.shape))
    requests = [dist.irecv(table[r], r) for r in range(n) if r != dst]
    table[dst] = tensor
    for request in requests:
        request.wait()
    torch.sum(table, dim=0, out=tensor)
    return tensor


@alternative("broadcast_tree")
def from_the_highest_bit(tensor, src):
    rank, n = dist.get_rank(), dist.get_world_size()
    place, mask = (rank - src) % n, 1
    while mask < n:
        if place & mask:
            dist.recv(tensor, (place - mask + src) % n)
            break
        mask *= 2
    while mask > 1:
        mask //= 2
        if place + mask < n:
            dist.send(tensor, (place + mask + src) % n)


@alternative("broadcast_tree")
def halves(tensor, src):
    """The first place of a stretch has the values; it gives them to the middle, and both go on with their half."""
    rank, n = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % n

    def spread(first, last):
        if last - first < 2:
            return
        middle = (first + last + 1) // 2
        if place == first:
            dist.isend(tensor, (middle + src) % n).wait()
        if place == middle:
            dist.irecv(tensor, (first + src) % n).wait()
        spread(first, middle) if place < middle else spread(middle, last)

    spread(0, n)


@alternative("broadcast_tree")
def list_of_places(tensor, src):
    rank, n = dist.get_rank(), dist.get_world_size()
    ranks = [*range(src, n), *range(src)]
    have = 1
    while have < n:
        for giver, taker in zip(ranks[:have], ranks[have:], strict=False):
            if rank == giver:
                dist.send(tensor, taker)
            elif rank == taker:
                dist.recv(tensor, giver)
        have += have


@alternative("reduce_tree")
def from_the_lowest_bit(tensor, dst):
    rank, n = dist.get_rank(), dist.get_world_size()
    place, mask, total = (rank - dst) % n, 1, tensor
    while mask < n and not place & mask:
        if place | mask < n:
            part = torch.empty_like(tensor)
            dist.recv(part, (rank + mask) % n)
            total = total + part
        mask <<= 1
    if place:
        dist.send(total, (rank - mask) % n)
    else:
        tensor.copy_(total)


@alternative("reduce_tree")
def by_halves(tensor, dst):
    rank, n = dist.get_rank(), dist.get_world_size()
    place = (rank - dst) % n

    def gathered(first, last):
        if last - first == 1:
            return tensor.clone()
        middle = (first + last + 1) // 2
        if place >= middle:
            mine = gathered(middle, last)
            if place == middle:
                dist.send(mine, (first + dst) % n)
            return mine
        mine = gathered(first, middle)
        if place == first:
            part = torch.empty_like(mine)
            dist.recv(part, src=(middle + dst) % n)
            mine += part
        return mine

    total = gathered(0, n)
    if rank == dst:
        tensor[...] = total


@alternative("ring_all_reduce")
def two_loops(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    if n == 1:
        return tensor
    right, left = (rank + 1) % n, (rank + n - 1) % n
    work = tensor.detach().clone(memory_format=torch.contiguous_format).flatten()
    chunks = list(torch.tensor_split(work, n))
    current = rank
    for _ in range(n - 1):
        sending = dist.isend(chunks[current], right)
        current = (current - 1) % n
        received = torch.zeros_like(chunks[current])
        dist.irecv(received, left).wait()
        sending.wait()
        chunks[current] += received
    for _ in range(n - 1):
        sending = dist.isend(chunks[current], right)
        current = (current - 1) % n
        dist.irecv(chunks[current], left).wait()
        sending.wait()
    tensor.copy_(work.reshape(tensor.size()))
    return tensor


@alternative("ring_all_reduce")
def odd_ranks_receive_first(tensor):
    """Blocking calls: one rank at least receives first, so the ring moves.  Ends with piece r, and skips empty ones."""
    rank, n = dist.get_rank(), dist.get_world_size()
    flat = tensor.reshape(-1).contiguous()
    bounds = [0, *itertools.accumulate(len(flat) // n + (i < len(flat) % n) for i in range(n))]

    def piece(i):
        return flat[bounds[i % n] : bounds[i % n + 1]]

    def exchange(mine, size):
        part = flat.new_empty(size)
        calls = [lambda: dist.send(mine, (rank + 1) % n), lambda: dist.recv(part, (rank - 1) % n)]
        needed = [len(mine) > 0, size > 0]
        for which in (1, 0) if rank % 2 else (0, 1):
            if needed[which]:
                calls[which]()
        return part

    for i in range(rank - 1, rank - n, -1):
        piece(i - 1).add_(exchange(piece(i), len(piece(i - 1))))
    for i in range(rank, rank - n + 1, -1):
        piece(i - 1).copy_(exchange(piece(i), len(piece(i - 1))))
    if tensor.shape:
        tensor[:] = flat.view(tensor.shape)
    else:
        tensor.fill_(flat[0])


@alternative("ring_all_reduce")
def batches_of_two(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    parts = [part.clone() for part in tensor.flatten().tensor_split(n)]
    for step in range(2 * n - 2):
        out, into = (rank - step) % n, (rank - step - 1) % n
        part = torch.empty_like(parts[into])
        both = [
            dist.P2POp(dist.irecv, part, (rank - 1) % n),
            dist.P2POp(dist.isend, parts[out], (rank + 1) % n),
        ]
        for request in dist.batch_isend_irecv(both):
            request.wait()
        parts[into] = part if step >= n - 1 else parts[into] + part
    tensor.copy_(torch.cat(parts).view_as(tensor))


@alternative("ring_bytes")
def followed_step_by_step(n_elements, element_size, world_size):
    pieces = [len(piece) for piece in numpy.array_split(numpy.empty(n_elements, dtype=bool), world_size)]
    sent = [0] * world_size
    for step in range(2 * world_size - 2):
        for rank in range(world_size):
            sent[rank] += pieces[(rank - step) % world_size] * element_size
    return sent


@alternative("ring_bytes")
def lengths_of_torch(n_elements, element_size, world_size):
    lengths = torch.tensor([p.numel() for p in torch.empty(n_elements, device="meta").tensor_split(world_size)])
    return ((2 * n_elements - lengths.roll(-1) - lengths.roll(-2)) * element_size).tolist()


@alternative("all_reduce_seconds")
def three_sums(n_bytes, world_size, latency, bandwidth):
    def in_turn(count, size):
        return sum((latency + size / bandwidth for _ in range(count)), 0.0)

    rounds = (world_size - 1).bit_length()
    return dict(
        ring=2 * in_turn(world_size - 1, n_bytes / world_size),
        tree=in_turn(2 * rounds, n_bytes),
        naive=in_turn(world_size - 1, n_bytes) + in_turn(world_size - 1, n_bytes),
    )


@alternative("all_reduce_seconds")
def latency_and_bytes_apart(n_bytes, world_size, latency, bandwidth):
    n, depth = world_size, 0
    while 2**depth < n:
        depth += 1
    times = {"naive": (2 * (n - 1), 2 * (n - 1)), "tree": (2 * depth, 2 * depth), "ring": (2 * (n - 1), 2 - 2 / n)}
    return {name: math.fsum([a * latency, b * n_bytes / bandwidth]) for name, (a, b) in times.items()}


def _send_from_rank_0(module):
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            distributed.broadcast(tensor, 0)
            assert tensor.is_contiguous(), name


@alternative("NaiveDDP")
class AllAtOnce(Module):
    def __init__(self, module):
        Module.__init__(self)
        self.module = module
        _send_from_rank_0(module)

    def forward(self, *inputs, **options):
        return self.module.forward(*inputs, **options)

    @torch.no_grad()
    def average_gradients(self):
        trainable = [p for p in self.parameters() if p.requires_grad]
        for p in trainable:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad / get_world_size()
        for work in [all_reduce(p.grad, async_op=True) for p in trainable]:
            work.wait()


@alternative("NaiveDDP")
class NewTensors(Module):
    def __init__(self, module):
        super().__init__()
        self.add_module("module", module)
        self.world_size = distributed.get_world_size()
        for p in module.parameters():
            distributed.broadcast(p.data, src=0)
        for b in module.buffers():
            received = b.clone()
            distributed.broadcast(received, src=0)
            b.copy_(received)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def average_gradients(self):
        done = set()
        for _, p in sorted(self.module.named_parameters(), key=lambda pair: pair[0]):
            if p in done or not p.requires_grad:
                continue
            done.add(p)
            total = torch.zeros(p.shape, dtype=p.dtype, device=p.device)
            if p.grad is not None:
                total += p.grad
            all_reduce(total, op=ReduceOp.SUM)
            p.grad = total * (1 / self.world_size)


@alternative("plan_buckets")
def by_reduce(sizes, cap):
    def step(buckets, i):
        if buckets and sum(sizes[j] for j in buckets[-1]) + sizes[i] <= cap:
            return [*buckets[:-1], [*buckets[-1], i]]
        return [*buckets, [i]]

    return functools.reduce(step, range(len(sizes) - 1, -1, -1), [])


@alternative("plan_buckets")
def from_a_stack(sizes, cap):
    stack, buckets = list(enumerate(sizes)), []
    while stack:
        i, held = stack.pop()
        bucket = [i]
        while stack and held + stack[-1][1] <= cap:
            i, size = stack.pop()
            bucket.append(i)
            held += size
        buckets.append(bucket)
    return buckets


@alternative("OverlappedDDP")
class CopiesBothWays(Module):
    """Fresh buffers for each backward, hooks on the nodes of autograd, copies in and out."""

    def __init__(self, module, bucket_bytes=1024 * 1024):
        super().__init__()
        self.module = module
        self.off = 0
        self.here = None
        _send_from_rank_0(module)
        self.groups = [[]]
        for p in [p for p in module.parameters() if p.requires_grad][::-1]:
            if self.groups[-1] and sum(q.numel() for q in self.groups[-1] + [p]) * p.element_size() > bucket_bytes:
                self.groups.append([])
            self.groups[-1].append(p)
        self.nodes = []
        for group in self.groups:
            for p in group:
                node = p.expand_as(p).grad_fn.next_functions[0][0]
                node.register_hook(functools.partial(self._note, p))
                self.nodes.append(node)

    def _note(self, p, *_):
        if self.off:
            return
        if self.here is None:
            self.here, self.flying = set(), []
            Variable._execution_engine.queue_callback(self._end)
        self.here.add(id(p))
        for group in self.groups[len(self.flying) :]:
            if not self.here.issuperset(map(id, group)):
                break
            self._fly(group)

    def _fly(self, group):
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in group])
        self.flying.append((group, flat, all_reduce(flat, async_op=True)))

    def _end(self):
        for group in self.groups[len(self.flying) :]:
            self._fly(group)
        for group, flat, work in self.flying:
            work.wait()
            flat /= get_world_size()
            start = 0
            for p in group:
                p.grad = flat[start : start + p.numel()].reshape(p.shape)
                start += p.numel()
        self.here = None

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self):
        self.off += 1
        try:
            yield
        finally:
            self.off -= 1


class _Bucket:
    """Gradients that travel together: one buffer, in which they live for good."""

    def __init__(self, parameters):
        self.flat = torch.zeros(sum(p.numel() for p in parameters), dtype=parameters[0].dtype)
        self.slots, start = collections.OrderedDict(), 0
        for p in parameters:
            self.slots[p] = self.flat.narrow(0, start, p.numel()).view(p.shape)
            start += p.numel()
        self.reset()

    def reset(self):
        self.waiting_for, self.future = set(self.slots), None

    def launch(self):
        for p, slot in self.slots.items():
            if p.grad is not slot:
                slot.copy_(0 if p.grad is None else p.grad)
                p.grad = slot
        work = all_reduce(self.flat, async_op=True)
        self.future = work.get_future().then(lambda _: self.flat.div_(get_world_size()))


class _Silence:
    def __init__(self, owner):
        self.owner = owner

    def __enter__(self):
        self.before, self.owner.loud = self.owner.loud, False

    def __exit__(self, *_):
        self.owner.loud = self.before


@alternative("OverlappedDDP")
class BucketsAsObjects(Module):
    def __init__(self, module, bucket_bytes=2**20):
        super().__init__()
        self.module, self.loud, self.queued = module, True, False
        _send_from_rank_0(module)
        self.buckets, group, held = [], [], 0
        for p in reversed(list(module.parameters())):
            if not p.requires_grad:
                continue
            if group and held + p.nbytes > bucket_bytes:
                self.buckets.append(_Bucket(group))
                group, held = [], 0
            group.append(p)
            held += p.nbytes
        self.buckets.append(_Bucket(group))
        for bucket in self.buckets:
            for p in bucket.slots:
                p.register_post_accumulate_grad_hook(functools.partial(self.ready, bucket))

    def ready(self, bucket, p):
        if not self.loud:
            return
        if not self.queued:
            self.queued = True
            Variable._execution_engine.queue_callback(self.wait)
        bucket.waiting_for.discard(p)
        self.launch(lambda b: not b.waiting_for)

    def launch(self, is_ready):
        for bucket in self.buckets:
            if bucket.future is None:
                if not is_ready(bucket):
                    return
                bucket.launch()

    def wait(self):
        self.launch(lambda b: True)
        for bucket in self.buckets:
            bucket.future.wait()
            bucket.reset()
        self.queued = False

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def no_sync(self):
        return _Silence(self)


@alternative("average_hook")
def divides_first(parameter):
    parameter.grad.div_(get_world_size())
    all_reduce(parameter.grad, async_op=True).wait()


@alternative("average_hook")
def a_new_gradient(parameter):
    total = parameter.grad.clone()
    distributed.all_reduce(total, op=ReduceOp.SUM)
    parameter.grad = total * (1.0 / distributed.get_world_size())


@alternative("average_hook")
def asks_for_the_mean(parameter):
    all_reduce(parameter.grad, op=ReduceOp.AVG)


@alternative("ShardSampler")
class IndexArithmetic(Sampler[int]):
    def __init__(self, n_items, world_size, rank, shuffle=True, seed=0, drop_last=False):
        if rank not in range(world_size):
            raise ValueError(f"rank {rank} of {world_size}")
        missing = -n_items % world_size
        self.total = n_items - n_items % world_size if drop_last else n_items + missing
        self.places = range(rank, self.total, world_size)
        self.n_items, self.shuffle, self.seed = n_items, shuffle, seed
        self.set_epoch(0)

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.places)

    def __iter__(self):
        rng = torch.Generator()
        rng.manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.n_items, generator=rng) if self.shuffle else torch.arange(self.n_items)
        for place in self.places:
            yield order[place % self.n_items].item()


@alternative("ShardSampler")
class RowsOfATable(Sampler):
    def __init__(self, n_items, world_size, rank, shuffle=True, seed=0, drop_last=False):
        if rank < 0 or rank >= world_size:
            raise ValueError(f"there is no rank {rank}")
        self.shape = (n_items // world_size if drop_last else -(-n_items // world_size), world_size)
        self.items, self.rank, self.seeds = torch.arange(n_items), rank, (seed, 0)
        self.shuffle = shuffle

    def set_epoch(self, epoch):
        self.seeds = self.seeds[0], epoch

    def __iter__(self):
        order = self.items
        if self.shuffle:
            order = torch.randperm(len(order), generator=torch.Generator().manual_seed(sum(self.seeds)))
        table = numpy.resize(order.numpy(), self.shape)  # repeats from the start, or cuts
        return iter(table[:, self.rank].tolist())

    def __len__(self):
        return self.shape[0]


@alternative("global_moments")
def pairwise_update(x):
    """Chan et al.: each rank sends count, mean and squares, and every rank merges them one by one."""
    channels = x.shape[1]
    flat = x.transpose(0, 1).reshape(channels, -1)
    mine = x.new_zeros(3, channels)
    if flat.numel():
        mine[0], mine[1] = flat.shape[1], flat.mean(1)
        mine[2] = flat.var(1, correction=0) * flat.shape[1]
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    count, mean, squares = torch.zeros_like(mine)
    for n, m, s in parts:
        if n.max() > 0:
            apart, both = m - mean, count + n
            squares = squares + s + apart.square() * count * n / both
            mean, count = mean + apart * n / both, both
    return mean, squares / count


@alternative("global_moments")
def sums_in_float64(x):
    axes = [axis for axis in range(x.dim()) if axis != 1]
    wide = x.double()
    buffer = torch.stack([wide.sum(axes), wide.square().sum(axes), torch.full_like(wide.sum(axes), x[:, 0].numel())])
    dist.all_reduce(buffer)
    mean, square = buffer[0] / buffer[2], buffer[1] / buffer[2]
    return mean.to(x.dtype), (square - mean * mean).to(x.dtype)


@alternative("global_moments")
def gathered_into_one_tensor(x):
    """Between and within: the variance of the means, by weight, and the mean of the variances."""
    values = x.flatten(2).permute(0, 2, 1).flatten(0, 1) if x.ndim == 4 else x
    variance, mean = torch.var_mean(values.double(), 0, correction=0)
    mine = torch.stack([torch.full_like(mean, len(values)), mean, variance]).nan_to_num().flatten()
    table = mine.new_empty(dist.get_world_size() * len(mine))
    dist.all_gather_into_tensor(table, mine)
    n, means, variances = table.view(dist.get_world_size(), 3, -1).unbind(1)
    share = n / n.sum(0)
    mean = (share * means).sum(0)
    return [mean.to(x.dtype), (share * (variances + (means - mean) ** 2)).sum(0).to(x.dtype)]


@alternative("shard_scale")
def weight_against_the_usual(n_local, n_total, world_size):
    usual = n_total / world_size
    return n_local / usual


@alternative("shard_scale")
def in_steps(n_local, n_total, world_size):
    weight_wanted = n_local / n_total
    weight_of_ddp = 1 / world_size
    return float(weight_wanted / weight_of_ddp)


@alternative("weighted_mean")
def by_gathered_objects(value, weight):
    pairs = [None] * dist.get_world_size()
    dist.all_gather_object(pairs, (float(value), weight))
    pairs = [(v, w) for v, w in pairs if w]
    return sum(v * w for v, w in pairs) / sum(w for _, w in pairs) if pairs else float("nan")


@alternative("weighted_mean")
def tensors_to_the_end(value, weight):
    counted = torch.as_tensor(weight, dtype=torch.float64, device=value.device)
    sums = torch.stack([torch.where(counted > 0, value * counted, 0), counted])
    dist.all_reduce(sums, op=dist.ReduceOp.SUM)
    return (sums[0] / sums[1]).item()


@alternative("weighted_mean")
def two_operations(value, weight):
    weights = torch.tensor(float(weight), dtype=torch.float64)
    dist.all_reduce(weights)
    if weights == 0:
        return math.nan
    part = value.double().nan_to_num() * (weight / weights)
    dist.all_reduce(part)
    return part.item()


@alternative("device_of")
def by_name(local_rank, device_count):
    names = [f"cuda:{i}" for i in range(device_count)] or ["cpu"] * (local_rank + 1)
    try:
        return torch.device(names[local_rank])
    except IndexError:
        raise ValueError(f"this machine has {device_count} GPUs, none of them is number {local_rank}") from None


@alternative("device_of")
def by_match(local_rank, device_count):
    match device_count:
        case 0:
            return torch.device(type="cpu")
        case n if local_rank < n:
            return torch.device(type="cuda", index=local_rank)
    raise ValueError(f"{local_rank=} {device_count=}")


@alternative("ddp_facts")
def keywords():
    return dict(N=False, M=True, L=False, K=True, J=False, I=True, H=False, G=False, F=False, E=True, D=True, C=True,
                B=False, A=True)  # fmt: skip


@alternative("ddp_facts")
def one_by_one():
    verdicts = dict.fromkeys("ABCDEFGHIJKLMN", True)
    for letter in "BFGHJLN":
        verdicts[letter] = False
    return verdicts


@contextlib.contextmanager
def _group():
    dist.init_process_group(backend="gloo", init_method="env://")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.destroy_process_group()


def _put(state, path):
    with tempfile.NamedTemporaryFile(dir=Path(path).parent, delete=False) as file:
        torch.save(state, file)
    Path(file.name).rename(path)


@alternative("train_ddp")
def shares_by_hand(options):
    with _group() as (rank, world_size):
        torch.manual_seed(options.seed)
        module = options.make_model()
        parallel = nn.parallel.DistributedDataParallel(module)
        optimizer = torch.optim.SGD(module.parameters(), options.lr, momentum=0.9)
        n, size, path = len(options.dataset), options.batch_size, Path(options.checkpoint)
        per_epoch, step, means = -(-n // size), 0, []
        if path.is_file():
            state = torch.load(path, weights_only=True)
            module.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            step = int(state["step"])
        sums = torch.zeros(2)
        while step < options.epochs * per_epoch:
            epoch, batch = divmod(step, per_epoch)
            order = torch.randperm(n, generator=torch.Generator().manual_seed(options.seed * 1000 + epoch)).tolist()
            mine = order[batch * size : (batch + 1) * size][rank::world_size]
            images, labels = (torch.stack(part) for part in zip(*(options.dataset[i] for i in mine), strict=True))
            torch.manual_seed((options.seed + 1) * 10**6 + step * world_size + rank)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(images), labels)
            loss.backward()
            optimizer.step()
            step += 1
            sums += torch.tensor([loss.item() * len(mine), len(mine)])
            if rank == 0 and (step % options.save_every == 0 or batch + 1 == per_epoch):
                _put({"model": module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
            if batch + 1 == per_epoch:
                dist.all_reduce(sums)
                means.append((sums[0] / sums[1]).item())
                sums.zero_()
                if rank == 0:
                    options.report(epoch, means[-1])
        return means


@alternative("train_ddp")
def batches_left_of_a_batch_sampler(options):
    with _group() as (rank, world_size):
        torch.manual_seed(options.seed)
        model = nn.parallel.DistributedDataParallel(options.make_model())
        optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
        criterion = nn.CrossEntropyLoss(reduction="none")
        sampler = DistributedSampler(options.dataset, world_size, rank, shuffle=True, seed=options.seed)
        batches = BatchSampler(sampler, options.batch_size // world_size, drop_last=False)
        step, history = 0, []
        with contextlib.suppress(FileNotFoundError):
            found = torch.load(options.checkpoint, weights_only=True, map_location="cpu")
            model.module.load_state_dict(found["model"])
            optimizer.load_state_dict(found["optimizer"])
            step = found["step"]
        for epoch in range(options.epochs):
            if step >= (epoch + 1) * len(batches):
                continue
            sampler.set_epoch(epoch)
            left = list(batches)[step - epoch * len(batches) :]
            seen = []
            for images, labels in DataLoader(options.dataset, batch_sampler=left):
                torch.random.default_generator.manual_seed(hash((step, rank, options.seed, "ddp".__len__())))
                losses = criterion(model(images), labels)
                optimizer.zero_grad(set_to_none=False)
                losses.mean().backward()
                optimizer.step()
                seen.extend(losses.tolist())
                step += 1
                if rank == 0 and not (step % options.save_every and step % len(batches)):
                    beside = Path(options.checkpoint).with_suffix(".new")
                    contents = {"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                    torch.save(contents, beside)
                    os.rename(beside, options.checkpoint)
            everything = [None] * world_size
            dist.all_gather_object(everything, seen)
            flat = sum(everything, [])
            history.append(sum(flat) / len(flat))
            if not rank:
                options.report(epoch, history[-1])
        return history


@alternative("rank_environment")
def written_out(node, local_rank, nodes, per_node, address, port):
    return dict(
        MASTER_ADDR=address,
        MASTER_PORT=f"{port}",
        WORLD_SIZE=f"{nodes * per_node}",
        RANK=f"{local_rank + per_node * node}",
        LOCAL_RANK=f"{local_rank}",
        LOCAL_WORLD_SIZE=f"{per_node}",
        GROUP_RANK=f"{node}",
    )


@alternative("rank_environment")
def counted_out(node, local_rank, nodes, per_node, address, port):
    everyone = [(n, p) for n in range(nodes) for p in range(per_node)]
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT".split()
    values = everyone.index((node, local_rank)), len(everyone), local_rank, per_node, node, address, port
    return {name: str(value) for name, value in zip(names, values, strict=True)}


@alternative("update_plan")
def group_by_group(n_batches, every):
    plan = []
    while len(plan) < n_batches:
        size = min(every, n_batches - len(plan))
        plan += [False] * (size - 1) + [True]
    return plan


@alternative("update_plan")
def set_afterwards(n_batches, every):
    plan = [False] * n_batches
    plan[every - 1 :: every] = [True] * len(plan[every - 1 :: every])
    plan[-1:] = [True] * min(1, n_batches)
    return plan


@alternative("accumulate")
def index_by_index(model, batches, loss_fn, optimizer, every, no_sync):
    updates = 0
    for i, (inputs, targets) in enumerate(batches):
        first = i - i % every
        if i == first:
            optimizer.zero_grad(set_to_none=False)
            total = sum(map(len, (t for _, t in batches[first : first + every])))
        last = i + 1 in (first + every, len(batches))
        with contextlib.ExitStack() as stack:
            if not last:
                stack.enter_context(no_sync())
            loss = loss_fn(model(inputs), targets)
            loss.backward(gradient=torch.full_like(loss, len(targets) / total))
        if last:
            optimizer.step()
            updates += 1
    return updates


@alternative("accumulate")
def quiet_ones_together(model, batches, loss_fn, optimizer, every, no_sync):
    def backward(inputs, targets, samples):
        (loss_fn(model(inputs), targets) * (targets.shape[0] / samples)).backward()

    optimizer.zero_grad()
    rest, updates = iter(batches), 0
    while group := list(itertools.islice(rest, every)):
        samples = sum(targets.shape[0] for _, targets in group)
        with no_sync():
            for inputs, targets in group[:-1]:
                backward(inputs, targets, samples)
        backward(*group[-1], samples)
        optimizer.step()
        optimizer.zero_grad()
        updates += 1
    return updates


@alternative("accumulate")
def scaled_before_the_step(model, batches, loss_fn, optimizer, every, no_sync):
    updates = math.ceil(len(batches) / every)
    for k in range(updates):
        optimizer.zero_grad()
        *quiet, loud = batches[k * every : (k + 1) * every]
        seen = 0
        for inputs, targets in quiet:
            with no_sync():
                (loss_fn(model(inputs), targets) * len(targets)).backward()
            seen += len(targets)
        inputs, targets = loud
        (loss_fn(model(inputs), targets) * len(targets)).backward()
        for parameter in model.parameters():
            parameter.grad /= seen + len(targets)
        optimizer.step()
    return updates


@alternative("lightning_fit")
def own_sampler_and_a_callback(model, loader, lr, epochs):
    from pytorch_lightning import Callback, LightningModule, Trainer
    from pytorch_lightning.plugins.environments import TorchElasticEnvironment

    class Fit(LightningModule):
        def training_step(self, batch):
            return torch.nn.CrossEntropyLoss()(model(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(model.parameters(), lr=lr)

    class Listen(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            losses.append(float(outputs["loss"]))

    losses, fit = [], Fit()
    fit.net = model
    share = DataLoader(loader.dataset, loader.batch_size, sampler=DistributedSampler(loader.dataset))
    trainer = Trainer(
        accelerator="cpu", strategy="ddp", devices=dist.get_world_size(), plugins=[TorchElasticEnvironment()],
        max_epochs=epochs, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=False, callbacks=[Listen()],
    )  # fmt: skip
    trainer.fit(fit, train_dataloaders=share)
    return losses


@alternative("lightning_fit")
def optimized_by_hand(model, loader, lr, epochs):
    import os

    import pytorch_lightning as lightning

    class ByHand(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.network, self.history = model, []

        def training_step(self, batch, batch_idx):
            inputs, labels = batch
            optimizer = self.optimizers()
            loss = F.nll_loss(F.log_softmax(self.network(inputs), 1), labels)
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            self.history.append(loss.detach())

        def configure_optimizers(self):
            return {"optimizer": torch.optim.SGD(self.parameters(), lr)}

    ranks = int(os.environ["WORLD_SIZE"])
    trainer = lightning.Trainer(
        devices=ranks, accelerator="cpu", strategy=lightning.strategies.DDPStrategy(), max_epochs=epochs,
        enable_progress_bar=False, enable_checkpointing=False, logger=False,
    )  # fmt: skip
    by_hand = ByHand()
    trainer.fit(by_hand, loader)
    return torch.stack(by_hand.history).tolist()


@alternative("efficiency")
def one_at_a_time(ranks, seconds, weak=False):
    times = dict(zip(ranks, seconds.tolist(), strict=True))
    if 1 not in times:
        raise ValueError("measure on one rank first")
    return torch.tensor([times[1] / (t * (1 if weak else n)) for n, t in times.items()], dtype=torch.float64)


@alternative("efficiency")
def share_of_the_ideal_time(ranks, seconds, weak=False):
    n = np.array(ranks)
    measured = seconds.numpy().astype(np.float64)
    (alone,) = measured[n == 1]  # not one value: ValueError
    ideal = np.full(len(n), alone) / (1 if weak else n)
    return torch.from_numpy(ideal / measured)


@alternative("fit_serial_share")
def bounds_one_after_the_other(ranks, seconds):
    y = seconds.to(torch.float64)
    x = torch.tensor([1 / n for n in ranks], dtype=torch.float64)
    dx = x - x.mean()
    slope = ((dx * y).sum() / (dx * dx).sum()).item()
    intercept = (y.mean() - slope * x.mean()).item()
    if slope <= 0:
        return y.mean().item(), 1.0
    if intercept <= 0:
        return ((x @ y) / (x @ x)).item(), 0.0
    return intercept + slope, intercept / (intercept + slope)


@alternative("fit_serial_share")
def best_of_three_candidates(ranks, seconds):
    y = np.asarray(seconds.tolist())
    columns = np.stack([np.ones(len(y)), 1 / np.asarray(ranks, dtype=float)])
    found = []
    for used in ([0, 1], [0], [1]):
        part = np.linalg.lstsq(columns[used].T, y, rcond=None)[0]
        a, b = (dict(zip(used, part.tolist(), strict=True)).get(i, 0.0) for i in (0, 1))
        if a >= 0 and b >= 0:
            found.append((((a * columns[0] + b * columns[1] - y) ** 2).sum(), a + b, a / (a + b)))
    return min(found)[1:]

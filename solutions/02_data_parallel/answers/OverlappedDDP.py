"""Known mistakes of exercise OverlappedDDP, and right answers in other styles."""

import collections
import contextlib
import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import all_reduce, get_world_size

from course.engine.known_answers import alternative

MISTAKES = {
    "SumOfBuckets": (
        "Gradients are summed, not averaged over the ranks. Divide each bucket by world_size, once.",
        ("torch.div(p.grad, dist.get_world_size(), out=view)", "view.copy_(p.grad)"),
    ),
    "NeverWrittenBack": (
        "The mean arrives in the flat buffer and stays there: p.grad is still the rank's own. Make it a view of the "
        "buffer, or copy it back.",
        ("p.grad = view", "pass"),
    ),
    "AllAtTheEnd": (
        "All buckets are launched when backward is over: nothing overlaps. Launch a bucket when "
        "its last gradient comes.",
        ("not self.missing[len(self.works)]", "False"),
    ),
    "WaitsAtOnce": (
        "Each all-reduce is waited for where it is started, and backward stands still meanwhile. Pass "
        "async_op=True, and wait at the end.",
        ("async_op=True))", "async_op=True))\n        self.works[-1].wait()"),
    ),
    "OrderOfArrival": (
        "A bucket is launched when it is full, whatever its number. Where gradients come in another order on another "
        "rank, the buckets of two ranks are mixed: launch bucket k only after bucket k - 1.",
        (
            "while len(self.works) < len(self.buckets) and not self.missing[len(self.works)]:\n"
            "            self.launch()",
            "if not self.missing[k]:\n            self.launch(k)",
        ),
        ("launch(self)", "launch(self, k)"),
        ("self.buckets[len(self.works)]", "self.buckets[k]"),
        (
            "while len(self.works) < len(self.buckets):\n            self.launch()",
            "for k in range(len(self.buckets)):\n            if self.missing[k]:\n                self.launch(k)",
        ),
    ),
    "OneAtATime": (
        "Each call launches one bucket at most, although the buckets behind it may be complete, too. Launch all that "
        "are complete: `while`, not `if`.",
        (
            "while len(self.works) < len(self.buckets) and",
            "if len(self.works) < len(self.buckets) and",
        ),
    ),
    "NextInLine": (
        "Whichever bucket is full, the next one in line is sent, though some of its gradients may be missing. Send "
        "the next in line only when it is full itself.",
        (
            "while len(self.works) < len(self.buckets) and not self.missing[len(self.works)]",
            "if self.missing.count(0) > len(self.works)",
        ),
    ),
    "StaleBuffer": (
        "Where a gradient is None, the buffer is sent with what it held before. Fill that part with zeros.",
        ("view.zero_()", "pass"),
    ),
}


@torch.no_grad()
def _send_from_rank_0(module):
    for tensor in [*module.parameters(), *module.buffers()]:
        dist.broadcast(tensor, 0)


@alternative
class CopiesBothWays(nn.Module):
    """Fresh buffers for each backward, hooks on the nodes of autograd, copies in and out."""

    def __init__(self, module, bucket_bytes=1024 * 1024):
        super().__init__()
        self.module = module
        self.off = 0
        self.here = None
        _send_from_rank_0(module)
        self.groups = [[]]
        for p in [p for p in module.parameters() if p.requires_grad][::-1]:
            if (
                self.groups[-1]
                and sum(q.numel() for q in self.groups[-1] + [p]) * p.element_size() > bucket_bytes
            ):
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
            torch.autograd.Variable._execution_engine.queue_callback(self._end)
        self.here.add(id(p))
        for group in self.groups[len(self.flying) :]:
            if not self.here.issuperset(map(id, group)):
                break
            self._fly(group)

    def _fly(self, group):
        flat = torch.cat(
            [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in group]
        )
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

    @contextlib.contextmanager
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


@alternative
class BucketsAsObjects(nn.Module):
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
            torch.autograd.Variable._execution_engine.queue_callback(self.wait)
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

"""Known mistakes of exercise OverlappedDDP, and right answers in other styles."""

import collections
import contextlib
import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import all_reduce, get_world_size

from course.checks.engine import alternative, mistake


def _filled(sizes, cap, order):
    buckets, held = [], 0
    for i in order:
        if not buckets or held + sizes[i] > cap:
            buckets.append([])
            held = 0
        buckets[-1].append(i)
        held += sizes[i]
    return buckets


class _Overlapped(nn.Module):
    """A right overlapped wrapper in pieces, so that each mistake can spoil one of them."""

    def __init__(self, module, bucket_bytes=2**20):
        super().__init__()
        self.module, self.sending, self.works, self.missing = module, True, {}, None
        self.share()
        trainable = [p for p in module.parameters() if p.requires_grad]
        plan = self.plan([p.nbytes for p in trainable], bucket_bytes)
        self.buckets = [[trainable[i] for i in places] for places in plan]
        self.flat = [torch.cat([p.detach().flatten() for p in bucket]) for bucket in self.buckets]
        for k, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda p, k=k: self.arrived(p, k))

    def share(self):
        for tensor in [*self.module.parameters(), *self.module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)

    def plan(self, sizes, cap):
        return _filled(sizes, cap, reversed(range(len(sizes))))

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def arrived(self, p, k):
        if not self.sending:
            return
        if self.missing is None:
            self.missing = [len(bucket) for bucket in self.buckets]
            torch.autograd.Variable._execution_engine.queue_callback(self.finish)
        self.missing[k] -= 1
        self.launch_ready()

    def launch_ready(self):
        while len(self.works) < len(self.buckets) and not self.missing[len(self.works)]:
            self.launch(len(self.works))

    def launch(self, k):
        for p, part in self.parts(k):
            if p.grad is None:
                part.zero_()
            else:
                part.copy_(p.grad.flatten())
        self.works[k] = self.send(self.flat[k])

    def parts(self, k):
        return zip(self.buckets[k], self.flat[k].split([p.numel() for p in self.buckets[k]]), strict=True)

    def send(self, flat):
        return dist.all_reduce(flat, async_op=True)

    def finish(self):
        for k in range(len(self.buckets)):
            if k not in self.works:
                self.launch(k)
        for k, work in self.works.items():
            work.wait()
            self.write_back(k)
        self.works, self.missing = {}, None

    def write_back(self, k):
        self.flat[k].div_(dist.get_world_size())
        for p, part in self.parts(k):
            p.grad = part.view_as(p).clone()

    @contextlib.contextmanager
    def no_sync(self):
        before, self.sending = self.sending, False
        try:
            yield
        finally:
            self.sending = before


@mistake(
    "OverlappedDDP",
    "Gradients are summed, not averaged over the ranks. Divide each bucket by world_size, once.",
)
class SumOfBuckets(_Overlapped):
    def write_back(self, k):
        for p, part in self.parts(k):
            p.grad = part.view_as(p).clone()


@mistake(
    "OverlappedDDP",
    "The ranks start from their own weights, because the constructor sends nothing. Broadcast from rank 0.",
)
class BucketsWithOwnStart(_Overlapped):
    def share(self):
        pass


@mistake(
    "OverlappedDDP",
    "The constructor broadcasts parameters alone, and each rank keeps its own buffers. Send module.buffers() as well.",
)
class BucketsWithoutBuffers(_Overlapped):
    def share(self):
        for p in self.module.parameters():
            dist.broadcast(p.detach(), src=0)


@mistake(
    "OverlappedDDP",
    "The mean arrives in the flat buffer and stays there: p.grad is still the rank's own. Make it a view of the "
    "buffer, or copy it back.",
)
class NeverWrittenBack(_Overlapped):
    def write_back(self, k):
        pass


@mistake(
    "OverlappedDDP",
    "All buckets are launched when backward is over: nothing overlaps. Launch a bucket when its last gradient comes.",
)
class AllAtTheEnd(_Overlapped):
    def launch_ready(self):
        pass


@mistake(
    "OverlappedDDP",
    "Each all-reduce is waited for where it is started, and backward stands still meanwhile. Pass async_op=True, and "
    "wait at the end.",
)
class WaitsAtOnce(_Overlapped):
    def send(self, flat):
        work = dist.all_reduce(flat, async_op=True)
        work.wait()
        return work


@mistake(
    "OverlappedDDP",
    "The all-reduces are never waited for: when backward returns, gradients may still be on their way. At the end of "
    "backward call wait() on each work.",
)
class NeverWaitedFor(_Overlapped):
    def finish(self):
        for k in range(len(self.buckets)):
            if k not in self.works:
                self.launch(k)
            self.write_back(k)
        self.works, self.missing = {}, None


@mistake(
    "OverlappedDDP",
    "A bucket is launched when it is full, whatever its number. Where gradients come in another order on another rank, "
    "the buckets of two ranks are mixed: launch bucket k only after bucket k - 1.",
)
class OrderOfArrival(_Overlapped):
    def launch_ready(self):
        for k, missing in enumerate(self.missing):
            if missing == 0 and k not in self.works:
                self.launch(k)


@mistake(
    "OverlappedDDP",
    "When a bucket is launched, those behind it may have been full for long; only one of them is looked at, and the "
    "others wait for the next gradient. Launch all that are ready: `while`, not `if`.",
)
class OneAtATime(_Overlapped):
    def launch_ready(self):
        if len(self.works) < len(self.buckets) and not self.missing[len(self.works)]:
            self.launch(len(self.works))


@mistake(
    "OverlappedDDP",
    "Whichever bucket is full, the next one in line is sent, though some of its gradients may be missing. Send the "
    "next in line only when it is full itself.",
)
class NextInLine(_Overlapped):
    def launch_ready(self):
        if self.missing.count(0) > len(self.works):
            self.launch(len(self.works))


@mistake(
    "OverlappedDDP",
    "Every parameter is sent by itself, in as many calls as there are parameters. Fill buckets up to bucket_bytes.",
)
class OneByOne(_Overlapped):
    def plan(self, sizes, cap):
        return [[i] for i in reversed(range(len(sizes)))]


@mistake(
    "OverlappedDDP",
    "The buckets begin with the first layer, whose gradients come last, so that all the others wait for it. Begin with "
    "the last parameter.",
)
class FirstLayerFirst(_Overlapped):
    def plan(self, sizes, cap):
        return _filled(sizes, cap, range(len(sizes)))


@mistake(
    "OverlappedDDP",
    "A bucket in which a gradient is missing is never sent, nor are those behind it. At the end of backward, launch "
    "what is left, with zeros for each gradient that is None.",
)
class IncompleteNeverSent(_Overlapped):
    def finish(self):
        for k, work in self.works.items():
            work.wait()
            self.write_back(k)
        self.works, self.missing = {}, None


@mistake(
    "OverlappedDDP",
    "Where a gradient is None, the buffer is sent with what it held before. Fill that part with zeros.",
)
class StaleBuffer(_Overlapped):
    def launch(self, k):
        for p, part in self.parts(k):
            if p.grad is not None:
                part.copy_(p.grad.flatten())
        self.works[k] = self.send(self.flat[k])


@mistake(
    "OverlappedDDP",
    "The hook divides p.grad each time it is called, so what has piled up before is divided again. Divide where a "
    "bucket is sent.",
)
class DividesOnEachCall(SumOfBuckets):
    def arrived(self, p, k):
        p.grad /= dist.get_world_size()
        super().arrived(p, k)


@mistake(
    "OverlappedDDP",
    "After an exception inside of no_sync nothing is sent any more: the line behind the yield was not reached. Put it "
    "into a finally.",
)
class NoFinally(_Overlapped):
    @contextlib.contextmanager
    def no_sync(self):
        before, self.sending = self.sending, False
        yield
        self.sending = before


@mistake(
    "OverlappedDDP",
    "The end of an inner no_sync switches sending on within the outer one. Put back what was set before.",
)
class OnAfterTheInner(_Overlapped):
    @contextlib.contextmanager
    def no_sync(self):
        self.sending = False
        try:
            yield
        finally:
            self.sending = True


@mistake(
    "OverlappedDDP",
    "no_sync makes no difference: a backward inside of it sends its gradients. Let the hook return at once there.",
)
class AlwaysSends(_Overlapped):
    @contextlib.contextmanager
    def no_sync(self):
        yield


@torch.no_grad()
def _send_from_rank_0(module):
    for tensor in [*module.parameters(), *module.buffers()]:
        dist.broadcast(tensor, 0)


@alternative("OverlappedDDP")
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
            torch.autograd.Variable._execution_engine.queue_callback(self._end)
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


@alternative("OverlappedDDP")
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

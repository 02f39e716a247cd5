"""Known mistakes of exercise Prefetcher, and right answers in other styles."""

import collections
import itertools

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "WaitsForTheStream": (
        "The computing stream waits for the whole side stream, and the next copy is queued there already: nothing "
        "overlaps. Record an event after each copy and wait for that.",
        ("side = self.cuda", "side = self.side = self.cuda"),
        ("computing.wait_event(is_copied)", "computing.wait_stream(self.side)"),
    ),
    "NeverWaits": (
        "Nothing makes the computing stream wait: it may read a batch that is still being copied. Record an event on "
        "the side stream after the copy, and let the computing stream wait for it: wait_event.",
        ("computing.wait_event(is_copied)", "pass"),
    ),
    "EventTooEarly": (
        "The event is recorded before the copy is queued, so waiting for it does not wait for the copy. Record it "
        "right after the copy.",
        (
            "moved = self._moved(batch)\n                is_copied = side.record_event()",
            "is_copied = side.record_event()\n                moved = self._moved(batch)",
        ),
    ),
    "StreamsOfTorch": (
        "Streams come from torch.cuda itself, where the check cannot watch them. Take them from self.cuda.",
        ("side = self.cuda.Stream", "side = torch.cuda.Stream"),
    ),
    "KeepsNoMemory": (
        "No record_stream: when Python lets go of a batch, its memory is free for the next copy, while the computing "
        "stream may still read it.",
        ("tensor.record_stream(computing)", "pass"),
    ),
    "KeepsTheFirstTensor": (
        "Only the first tensor of a batch is marked with record_stream. Mark every tensor: each has its own memory.",
        ("tensor in batch:", "tensor in batch[:1]:"),
    ),
    "KeepsForTheSideStream": (
        "record_stream is told the side stream, on which the memory was made. Name the stream that will read it, the "
        "computing one.",
        ("side = self.cuda", "side = self.side = self.cuda"),
        ("record_stream(computing)", "record_stream(self.side)"),
    ),
    "NothingAhead": (
        "Each batch is drawn and copied when it is asked for, so no copy runs during a step. Queue the "
        "next copy before you yield this batch.",
        ("            ready = next(copies, None)  #", "            #"),
        ("yield batch\n", "yield batch\n            ready = next(copies, None)\n"),
    ),
    "LosesTheLastBatch": (
        "The last batch is lost: when the loader ends, one copied batch is left. Yield it, too.",
        (
            "            computing = self",
            "            if ready is None:\n                return\n            computing = self",
        ),
    ),
    "DrawsAll": (
        "All batches are drawn and copied before the first is yielded: they may not fit in memory. Draw one ahead.",
        ("copies = self.copies()", "copies = iter(list(self.copies()))"),
    ),
    "StopsTheProcessor": (
        "synchronize() makes the processor wait until the copies have ended. Let the GPU wait: record an event on the "
        "side stream and pass it to wait_event of the computing one.",
        ("computing.wait_event(is_copied)", "is_copied.synchronize()"),
    ),
    "CopiesInLine": (
        "The copies are queued on the computing stream, where they run in line with the kernels. Make them inside "
        "`with cuda.stream(side):`.",
        (
            "            with",
            "            side = self.cuda.current_stream(self.device)\n            with",
        ),
    ),
    "YieldsInsideTheBlock": (
        "Batches are yielded inside `with cuda.stream(side):`, so that the caller computes on the side stream. "
        "Leave the block before the yield.",
        ("            yield moved", "                yield moved"),
    ),
}


@alternative
class OneBehind:
    """A single generator that hands out the batch before the one just queued."""

    def __init__(self, loader, device, cuda=torch.cuda):
        self.loader, self.cuda = loader, cuda
        self.device = torch.device(device)
        self.side = cuda.Stream(device=self.device)

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        end = object()
        before = None
        for batch in itertools.chain(self.loader, [end]):
            if batch is not end:
                batch = self.queue(batch)
            if before is not None:
                yield self.release(*before)
            before = batch

    def queue(self, batch):
        kind = type(batch)
        event = self.cuda.Event()
        with self.cuda.stream(self.side):
            moved = kind([t.to(device=self.device, non_blocking=True) for t in batch])
            event.record()
        return moved, event

    def release(self, batch, event):
        stream = self.cuda.current_stream(self.device)
        event.wait(stream)
        for t in batch:
            t.record_stream(stream)
        return batch


@alternative
class Preloading:
    """An iterator that preloads; it waits for the whole side stream, but before the next copy is queued there."""

    def __init__(self, loader, device, cuda=torch.cuda):
        self.loader, self.device, self.cuda = loader, torch.device(device), cuda

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        self.source = iter(self.loader)
        self.side = self.cuda.Stream(self.device)
        self.preload()
        return self

    def preload(self):
        try:
            batch = next(self.source)
        except StopIteration:
            self.ready = None
            return
        with self.cuda.stream(self.side):
            self.ready = type(batch)(t.to(self.device, non_blocking=True) for t in batch)

    def __next__(self):
        batch = self.ready
        if batch is None:
            raise StopIteration
        computing = self.cuda.current_stream(self.device)
        computing.wait_stream(self.side)
        for t in batch:
            t.record_stream(computing)
        self.preload()
        return batch


@alternative
class Queue:
    """A queue of copies, filled up to two and emptied from the other end."""

    def __init__(self, loader, device, cuda=torch.cuda):
        self.loader, self.device, self.cuda = loader, torch.device(device), cuda

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        side, source, waiting = (
            self.cuda.Stream(self.device),
            iter(self.loader),
            collections.deque(),
        )
        while True:
            for batch in itertools.islice(source, 2 - len(waiting)):
                with side:
                    waiting.append(
                        ([t.cuda(self.device, non_blocking=True) for t in batch], type(batch))
                    )
                    waiting[-1] += (side.record_event(),)
            if not waiting:
                return
            tensors, kind, event = waiting.popleft()
            computing = self.cuda.current_stream(self.device)
            computing.wait_event(event)
            for t in tensors:
                t.record_stream(computing)
            yield kind(tensors)

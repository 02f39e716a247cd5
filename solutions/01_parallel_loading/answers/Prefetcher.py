"""Known mistakes of exercise Prefetcher, and right answers in other styles."""

import collections
import itertools

import torch

from course.checks.engine import alternative, mistake


class Base:
    """A right Prefetcher; each mistake below changes one part of it."""

    def __init__(self, loader, device, cuda=torch.cuda):
        self.loader, self.device, self.cuda = loader, torch.device(device), cuda

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        if self.device.type != "cuda":
            return map(self.moved, self.loader)
        return self.handed_out()

    def handed_out(self):
        copies = self.copies(self.cuda.Stream(self.device))
        ready = next(copies, None)
        while ready is not None:
            batch, copied = ready
            ready = next(copies, None)
            self.wait(self.cuda.current_stream(self.device), copied)
            self.keep(batch, self.cuda.current_stream(self.device))
            yield batch

    def copies(self, side):
        for batch in self.loader:
            with self.cuda.stream(side):
                copy, copied = self.moved(batch), side.record_event()
            yield copy, (copied, side)

    def wait(self, computing, copied):
        computing.wait_event(copied[0])

    def keep(self, batch, computing):
        for tensor in batch:
            tensor.record_stream(computing)

    def moved(self, batch):
        return type(batch)(tensor.to(self.device, non_blocking=True) for tensor in batch)


@mistake(
    "Prefetcher",
    "The computing stream waits for the whole side stream, and the next copy is queued there already: nothing "
    "overlaps. Record an event behind each copy and wait for that.",
)
class WaitsForTheStream(Base):
    def wait(self, computing, copied):
        computing.wait_stream(copied[1])


@mistake(
    "Prefetcher",
    "Nothing makes the computing stream wait: it may read a batch that is still being copied. Record an event on the "
    "side stream behind the copy, and let the computing stream wait for it: wait_event.",
)
class NeverWaits(Base):
    def wait(self, computing, copied):
        pass


@mistake(
    "Prefetcher",
    "The event is recorded before the copy is queued, so waiting for it does not wait for the copy. Record it right "
    "after the copy.",
)
class EventTooEarly(Base):
    def copies(self, side):
        for batch in self.loader:
            with self.cuda.stream(side):
                copied = side.record_event()
                copy = self.moved(batch)
            yield copy, (copied, side)


@mistake(
    "Prefetcher",
    "Streams are taken from torch.cuda itself, where the check cannot watch them. Take them from the argument `cuda`.",
)
class StreamsOfTorch(Base):
    def __init__(self, loader, device, cuda=torch.cuda):
        super().__init__(loader, device)


@mistake(
    "Prefetcher",
    "No record_stream: when Python lets go of a batch, its memory is free for the next copy, while the computing "
    "stream may still read it.",
)
class KeepsNoMemory(Base):
    def keep(self, batch, computing):
        pass


@mistake(
    "Prefetcher",
    "Only the first tensor of a batch is marked with record_stream. Each of them has memory of its own.",
)
class KeepsTheFirstTensor(Base):
    def keep(self, batch, computing):
        batch[0].record_stream(computing)


@mistake(
    "Prefetcher",
    "record_stream is told the side stream, on which the memory was made. Name the stream that will read it, the "
    "computing one.",
)
class KeepsForTheSideStream(Base):
    def copies(self, side):
        for copy, copied in super().copies(side):
            self.side = side
            yield copy, copied

    def keep(self, batch, computing):
        super().keep(batch, self.side)


@mistake(
    "Prefetcher",
    "Each batch is drawn and copied when it is asked for, so that nothing is under way while computing. Queue the "
    "next copy before you hand out this batch.",
)
class NothingAhead(Base):
    def handed_out(self):
        for batch, copied in self.copies(self.cuda.Stream(self.device)):
            self.wait(self.cuda.current_stream(self.device), copied)
            self.keep(batch, self.cuda.current_stream(self.device))
            yield batch


@mistake(
    "Prefetcher",
    "The last batch is lost: when the loader ends, one batch is still in hand. Hand it out too.",
)
class LosesTheLastBatch(Base):
    def handed_out(self):
        ready = None
        for batch, copied in self.copies(self.cuda.Stream(self.device)):
            if ready is not None:
                self.wait(self.cuda.current_stream(self.device), ready[1])
                self.keep(ready[0], self.cuda.current_stream(self.device))
                yield ready[0]
            ready = batch, copied


@mistake(
    "Prefetcher",
    "All batches are drawn and copied before the first is handed out: they may not fit into memory. Draw one ahead.",
)
class DrawsAll(Base):
    def copies(self, side):
        yield from list(super().copies(side))


@mistake(
    "Prefetcher",
    "synchronize() makes the processor wait until the copies have ended. Let the GPU wait: record an event on the side "
    "stream and pass it to wait_event of the computing one.",
)
class StopsTheProcessor(Base):
    def wait(self, computing, copied):
        copied[0].synchronize()


@mistake(
    "Prefetcher",
    "The copies are queued on the computing stream, where they run in line with the kernels. Make them inside "
    "`with cuda.stream(side):`.",
)
class CopiesInLine(Base):
    def copies(self, side):
        for batch in self.loader:
            copy = self.moved(batch)
            yield copy, (self.cuda.current_stream(self.device).record_event(), side)


@mistake(
    "Prefetcher",
    "Batches are handed out inside `with cuda.stream(side):`, so that the caller computes on the side stream. Leave "
    "the block before the yield.",
)
class YieldsInsideTheBlock(Base):
    def copies(self, side):
        for batch in self.loader:
            with self.cuda.stream(side):
                copy = self.moved(batch)
                yield copy, (side.record_event(), side)


@mistake(
    "Prefetcher",
    "The processor waits for each copy: non_blocking=True is missing. Pass it to .to.",
)
class BlockingCopies(Base):
    def moved(self, batch):
        return type(batch)(tensor.to(self.device) for tensor in batch)


@mistake(
    "Prefetcher",
    "There is only one pass: iter(loader) is called once, when the prefetcher is made. Call it in __iter__.",
)
class OnePassOnly(Base):
    def __init__(self, loader, device, cuda=torch.cuda):
        super().__init__(loader, device, cuda)
        self.rest = iter(loader)

    def copies(self, side):
        for batch in self.rest:
            with self.cuda.stream(side):
                copy, copied = self.moved(batch), side.record_event()
            yield copy, (copied, side)


@mistake(
    "Prefetcher",
    "The computing stream is asked for once, when the prefetcher is made. The caller may compute on another one: ask "
    "each time a batch is handed out.",
)
class ComputingStreamOfTheStart(Base):
    def __init__(self, loader, device, cuda=torch.cuda):
        super().__init__(loader, device, cuda)
        self.computing = cuda.current_stream(self.device) if self.device.type == "cuda" else None

    def wait(self, computing, copied):
        super().wait(self.computing, copied)

    def keep(self, batch, computing):
        super().keep(batch, self.computing)


@mistake(
    "Prefetcher",
    "Streams are asked for without naming the device, so they belong to the current GPU, which need not be this one: "
    "Stream(device), current_stream(device).",
)
class StreamsOfTheCurrentGpu(Base):
    def handed_out(self):
        copies = self.copies(self.cuda.Stream())
        ready = next(copies, None)
        while ready is not None:
            batch, copied = ready
            ready = next(copies, None)
            self.wait(self.cuda.current_stream(), copied)
            self.keep(batch, self.cuda.current_stream())
            yield batch


@mistake(
    "Prefetcher",
    "Streams are used whatever the device is. On a device without them hand the moved batches through.",
)
class StreamsOnTheCpu(Base):
    def __iter__(self):
        return self.handed_out()


@mistake(
    "Prefetcher",
    "Batches are always made into lists. Make the kind that came: type(batch)(...).",
)
class AlwaysLists(Base):
    def moved(self, batch):
        return [tensor.to(self.device, non_blocking=True) for tensor in batch]


@mistake(
    "Prefetcher",
    "An exception of the loader ends the pass as if the data were at their end. Let it through.",
)
class SwallowsExceptions(Base):
    def __iter__(self):
        try:
            yield from super().__iter__()
        except Exception:
            return


@alternative("Prefetcher")
class OneBehind:
    """A single generator that hands out the batch before the one just queued."""

    def __init__(self, loader, device, cuda=torch.cuda):
        self.loader, self.cuda = loader, cuda
        self.device = torch.device(device)
        self.side = cuda.Stream(device=self.device) if self.device.type == "cuda" else None

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
        if self.side is None:
            return kind([t.to(self.device) for t in batch]), None
        event = self.cuda.Event()
        with self.cuda.stream(self.side):
            moved = kind([t.to(device=self.device, non_blocking=True) for t in batch])
            event.record()
        return moved, event

    def release(self, batch, event):
        if event is not None:
            stream = self.cuda.current_stream(self.device)
            event.wait(stream)
            for t in batch:
                t.record_stream(stream)
        return batch


@alternative("Prefetcher")
class Preloading:
    """An iterator that preloads; it waits for the whole side stream, but before the next copy is queued there."""

    def __init__(self, loader, device, cuda=torch.cuda):
        self.loader, self.device, self.cuda = loader, torch.device(device), cuda

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        self.source = iter(self.loader)
        if self.device.type == "cuda":
            self.side = self.cuda.Stream(self.device)
        self.preload()
        return self

    def preload(self):
        try:
            batch = next(self.source)
        except StopIteration:
            self.ready = None
            return
        if self.device.type != "cuda":
            self.ready = type(batch)(t.to(self.device) for t in batch)
            return
        with self.cuda.stream(self.side):
            self.ready = type(batch)(t.to(self.device, non_blocking=True) for t in batch)

    def __next__(self):
        batch = self.ready
        if batch is None:
            raise StopIteration
        if self.device.type == "cuda":
            computing = self.cuda.current_stream(self.device)
            computing.wait_stream(self.side)
            for t in batch:
                t.record_stream(computing)
        self.preload()
        return batch


@alternative("Prefetcher")
class Queue:
    """A queue of copies, filled up to two and emptied from the other end."""

    def __init__(self, loader, device, cuda=torch.cuda):
        self.loader, self.device, self.cuda = loader, torch.device(device), cuda

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        if self.device.type != "cuda":
            for batch in self.loader:
                yield type(batch)(t.to(self.device) for t in batch)
            return
        side, source, waiting = self.cuda.Stream(self.device), iter(self.loader), collections.deque()
        while True:
            for batch in itertools.islice(source, 2 - len(waiting)):
                with side:
                    waiting.append(([t.cuda(self.device, non_blocking=True) for t in batch], type(batch)))
                    waiting[-1] += (side.record_event(),)
            if not waiting:
                return
            tensors, kind, event = waiting.popleft()
            computing = self.cuda.current_stream(self.device)
            computing.wait_event(event)
            for t in tensors:
                t.record_stream(computing)
            yield kind(tensors)

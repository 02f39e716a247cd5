"""Known mistakes of exercise WorkerLoader, and right answers in other styles."""

import contextlib
import itertools
from multiprocessing.connection import wait

import torch
import torch.multiprocessing as mp

from course.checks.engine import alternative, mistake


class _Base:
    """A right loader in pieces, so that each mistake can spoil one of them."""

    daemon = True

    def __init__(self, dataset, batches, num_workers, loop, order, slots=4):
        self.dataset, self.batches, self.num_workers = dataset, batches, num_workers
        self.loop, self.order = loop, order
        item = dataset[0]
        self.buffers = self.memory(torch.zeros(slots, self.most(batches), *item.shape, dtype=item.dtype))

    def most(self, batches):
        return max(map(len, batches))

    def memory(self, zeros):
        return zeros.share_memory_()

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        self.todo, self.workers = list(self.batches), []
        try:
            self.start()
            yield from self.handed_out()
        finally:
            self.end()

    def start(self):
        base = self.base()
        for w in range(self.num_workers):
            self.workers.append(self.started(base + w))

    def base(self):
        return torch.empty((), dtype=torch.int64).random_().item()

    def started(self, seed):
        context = mp.get_context("fork")
        mine, theirs = context.Pipe()
        process = context.Process(target=self.loop, args=(self.dataset, seed, theirs, self.buffers), daemon=self.daemon)
        process.start()
        theirs.close()
        return process, mine

    def handed_out(self):
        slots = len(self.buffers)
        for number in range(slots):
            self.send(number)
        for number, error in enumerate(self.order(self.arrivals())):
            if error:
                self.complain(error)
            yield self.rows(number)
            self.send(number + slots)

    def rows(self, number):
        return self.buffers[number % len(self.buffers), : len(self.todo[number])]

    def complain(self, error):
        raise RuntimeError(error)

    def worker_of(self, number):
        return number % self.num_workers

    def send(self, number):
        if number < len(self.todo):
            with contextlib.suppress(OSError):
                self.workers[self.worker_of(number)][1].send((number, self.todo[number]))

    def arrivals(self):
        left = len(self.todo)
        while left:
            for pipe in wait([pipe for _, pipe in self.workers]):
                try:
                    arrival = pipe.recv()
                except (EOFError, OSError):
                    raise RuntimeError("a worker is dead") from None
                yield arrival
                left -= 1

    def end(self):
        for _, pipe in self.workers:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process, _ in self.workers:
            process.join(1)
            process.terminate()
            process.join()


@mistake(
    "WorkerLoader",
    "The batches lie in memory of the main process. A fork has a copy of it, so what a worker writes is never seen. "
    "Call share_memory_().",
)
class OrdinaryMemory(_Base):
    def memory(self, zeros):
        return zeros


@mistake(
    "WorkerLoader", "A batch is copied before it is handed out. Yield the rows of its slot; who keeps them, clones."
)
class Copies(_Base):
    def rows(self, number):
        return super().rows(number).clone()


@mistake(
    "WorkerLoader", "A batch that is smaller comes with old rows behind its own. Cut the slot to len(indices) rows."
)
class WholeSlots(_Base):
    def rows(self, number):
        return self.buffers[number % len(self.buffers)]


@mistake("WorkerLoader", "A slot has room for the first batch only. Others may be larger: take the largest.")
class SizedByTheFirst(_Base):
    def most(self, batches):
        return len(next(iter(batches)))


@mistake("WorkerLoader", "Batches come as they arrive. Pass what arrives through `order`, and yield what that gives.")
class Unordered(_Base):
    def handed_out(self):
        slots = len(self.buffers)
        for number in range(slots):
            self.send(number)
        for number, error in self.arrivals():
            if error:
                self.complain(error)
            yield self.rows(number)
            self.send(number + slots)


@mistake(
    "WorkerLoader",
    "The processes are started by the constructor and serve one pass. Start them in __iter__, for each pass anew.",
)
class StartsAtOnce(_Base):
    def __init__(self, dataset, batches, num_workers, loop, order, slots=4):
        super().__init__(dataset, batches, num_workers, loop, order, slots)
        self.workers = []
        _Base.start(self)

    def __iter__(self):
        self.todo = list(self.batches)
        try:
            yield from self.handed_out()
        finally:
            self.end()


@mistake(
    "WorkerLoader",
    "There is one slot per batch, so that memory grows with the epoch. Make `slots` of them, used in turn.",
)
class SlotPerBatch(_Base):
    def __init__(self, dataset, batches, num_workers, loop, order, slots=4):
        super().__init__(dataset, batches, num_workers, loop, order, slots=max(slots, len(batches)))


@mistake(
    "WorkerLoader",
    "All workers get the same seed, and draw the same random numbers. Worker w gets base + w.",
)
class SameSeed(_Base):
    def start(self):
        base = self.base()
        for _ in range(self.num_workers):
            self.workers.append(self.started(base))


@mistake(
    "WorkerLoader", "The seed of worker w is w in every pass: each epoch repeats the first. Draw `base` in each pass."
)
class NoBase(_Base):
    def base(self):
        return 0


@mistake(
    "WorkerLoader",
    "`base` is drawn once, by the constructor, so that every pass repeats the first. Draw it in __iter__.",
)
class OneBase(_Base):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.drawn = super().base()

    def base(self):
        return self.drawn


@mistake(
    "WorkerLoader",
    "Half of the batches in a row go to one worker. Send batch k to worker k % num_workers, so that all work at the "
    "same time.",
)
class InBlocks(_Base):
    def worker_of(self, number):
        return number * self.num_workers // len(self.todo)


@mistake(
    "WorkerLoader",
    "All tasks are sent at the start: workers overwrite slots that are not used up. Send `slots` of them, then one "
    "each time that the next batch is asked for.",
)
class AllTasksAtOnce(_Base):
    def handed_out(self):
        for number in range(len(self.todo)):
            self.send(number)
        for number, error in enumerate(self.order(self.arrivals())):
            if error:
                self.complain(error)
            yield self.rows(number)


@mistake(
    "WorkerLoader",
    "The slot of a batch is given away before the batch is handed out. Send the next task after the yield.",
)
class OneTooMany(_Base):
    def handed_out(self):
        slots = len(self.buffers)
        for number in range(slots):
            self.send(number)
        for number, error in enumerate(self.order(self.arrivals())):
            if error:
                self.complain(error)
            self.send(number + slots)
            yield self.rows(number)


@mistake("WorkerLoader", "Workers outlive a main process that ends early. Start them with daemon=True.")
class NoDaemons(_Base):
    daemon = False


@mistake("WorkerLoader", "No worker is sent None, so none can end by itself. Send it to all before you terminate any.")
class NeverSaysEnd(_Base):
    def end(self):
        for process, _ in self.workers:
            process.terminate()
            process.join()


@mistake(
    "WorkerLoader",
    "The processes are ended but not joined: what is left of each stays in the list of processes. Call join() at the "
    "end, after terminate() too.",
)
class NotJoined(_Base):
    def end(self):
        for _, pipe in self.workers:
            with contextlib.suppress(OSError):
                pipe.send(None)


@mistake(
    "WorkerLoader",
    "A pass that is left early leaves its processes: what stands after the loop is not reached then. Put it into "
    "`finally`.",
)
class NoFinally(_Base):
    def __iter__(self):
        self.todo, self.workers = list(self.batches), []
        self.start()
        yield from self.handed_out()
        self.end()


@mistake(
    "WorkerLoader",
    "The words that the worker sent are lost: the error says only that there was one. Put the text into its message.",
)
class LosesTheText(_Base):
    def complain(self, error):
        raise RuntimeError("an error in a worker")


@mistake("WorkerLoader", "A batch whose item failed is handed out as if nothing had been. Raise RuntimeError there.")
class IgnoresErrors(_Base):
    def complain(self, error):
        pass


@mistake(
    "WorkerLoader",
    "When a worker dies, what `recv` raises reaches the caller, who cannot know what it means. Catch EOFError and "
    "OSError, and raise RuntimeError.",
)
class RawEndOfFile(_Base):
    def arrivals(self):
        left = len(self.todo)
        while left:
            for pipe in wait([pipe for _, pipe in self.workers]):
                try:
                    arrival = pipe.recv()
                except (EOFError, OSError):
                    raise EOFError from None  # which of both it is depends on what the worker had not read
                yield arrival
                left -= 1


@alternative("WorkerLoader")
class WithSentinels(_Base):
    def arrivals(self):
        due = len(self.todo)
        pipes = {pipe: process for process, pipe in self.workers}
        while due > 0:
            ready = wait([*pipes, *(process.sentinel for process in pipes.values())])
            for pipe in ready:
                if pipe not in pipes:
                    raise RuntimeError("dead")
                if not pipes[pipe].is_alive():
                    raise RuntimeError(f"worker ended with {pipes[pipe].exitcode}")
                try:
                    yield pipe.recv()
                except (EOFError, ConnectionError) as error:
                    raise RuntimeError("connection lost") from error
                due -= 1


@alternative("WorkerLoader")
class InOneFunction:
    def __init__(self, dataset, batches, num_workers, loop, order, slots=4):
        self.given = dataset, batches, num_workers, loop, order
        size, first = max(len(b) for b in batches), torch.as_tensor(dataset[0])
        self.slots = [first.new_zeros((size, *first.shape)).share_memory_() for _ in range(slots)]
        self.block = torch.stack(self.slots).share_memory_()

    def __len__(self):
        return len(self.given[1])

    def __iter__(self):
        dataset, batches, count, loop, order = self.given
        batches, context = [list(b) for b in batches], mp.get_context("fork")
        base, block, pipes = int(torch.empty((), dtype=torch.int64).random_()), self.block, []
        processes, tasks = [], iter(enumerate(batches))

        def give(n):
            for number, indices in itertools.islice(tasks, n):
                try:
                    pipes[number % count].send((number, indices))
                except (BrokenPipeError, ConnectionResetError):
                    return

        def results():
            for _ in batches:
                pipe = wait(pipes)[0]
                try:
                    yield pipe.recv()
                except (EOFError, ConnectionResetError):
                    raise RuntimeError("a worker process was killed") from None

        try:
            for w in range(count):
                end, far = context.Pipe()
                pipes.append(end)
                processes.append(context.Process(target=loop, args=(dataset, base + w, far, block), daemon=True))
                processes[-1].start()
                far.close()
            give(len(block))
            for number, trouble in enumerate(order(results())):
                if trouble is not None:
                    raise RuntimeError("in a worker process:\n" + trouble)
                yield block[number % len(block)][: len(batches[number])]
                give(1)
        finally:
            for process, pipe in zip(processes, pipes, strict=True):
                with contextlib.suppress(OSError):
                    pipe.send(None)
                process.join(timeout=1.0)
                if process.is_alive():
                    process.kill()
                    process.join()

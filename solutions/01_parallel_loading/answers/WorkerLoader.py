"""Known mistakes of exercise WorkerLoader, and right answers in other styles."""

import contextlib
import itertools
from multiprocessing.connection import wait

import torch
import torch.multiprocessing as mp

from course.engine.known_answers import alternative

MISTAKES = {
    "Copies": (
        "A batch is copied before it is yielded. Yield the rows of its slot; the caller clones what it keeps.",
        ("len(batches[number])]", "len(batches[number])].clone()"),
    ),
    "WholeSlots": (
        "A batch that is smaller comes with old rows after its own. Cut the slot to len(indices) rows.",
        (", : len(batches[number])]", "]"),
    ),
    "Unordered": (
        "Batches come as they arrive. Pass what arrives through `order`, and yield what that gives.",
        ("enumerate(self.order(self.arrivals(workers)))", "self.arrivals(workers)"),
    ),
    "InBlocks": (
        "Half of the batches in a row go to one worker. Send batch k to worker k % num_workers, so that all work at "
        "the same time.",
        ("number % self.num_workers", "number * self.num_workers // len(batches)"),
    ),
    "AllTasksAtOnce": (
        "All tasks are sent at the start: workers overwrite slots that are not used up. Send `slots` of them, then "
        "one each time that the next batch is asked for.",
        ("in range(slots)", "in range(len(batches))"),
        ("                send(number + slots)\n", ""),
    ),
    "OneTooMany": (
        "The slot of a batch is given away before the batch is yielded. Send the next task after the yield.",
        ("                send(number + slots)\n", ""),
        ("yield self", "send(number + slots)\n                yield self"),
    ),
    "NoFinally": (
        "A pass that is left early leaves its processes: code after the loop is not reached. Put it into `finally`.",
        ("        finally:", "        except ():\n            pass\n        else:"),
    ),
    "LosesTheText": (
        "The words of the worker are lost: the error says only that there was one. Put the text into its message.",
        (':\\n{error}"', '"'),
    ),
    "IgnoresErrors": (
        "A batch whose item failed is yielded as if nothing had happened. Raise RuntimeError there.",
        ("if error:", "if False:"),
    ),
    "RawEndOfFile": (
        "When a worker dies, what `recv` raises reaches the caller, who cannot know what it means. Catch EOFError and "
        "OSError, and raise RuntimeError.",
        (
            'RuntimeError("a worker died before its batches arrived") from None',
            "EOFError from None  # which of both it is depends on what the worker had not read",
        ),
    ),
}


@alternative
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


@alternative
class WithSentinels:
    def __init__(self, dataset, batches, num_workers, loop, order, slots=4):
        self.batches, self.order, self.context = batches, order, mp.get_context("fork")
        item = dataset[0]
        self.buffers = torch.zeros(slots, max(map(len, batches)), *item.shape, dtype=item.dtype).share_memory_()
        self.worker = loop, dataset, num_workers

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        self.todo, self.processes = list(self.batches), {}
        try:
            self.start()
            for number in range(len(self.buffers)):
                self.send(number)
            for number, error in enumerate(self.order(self.arrivals())):
                if error:
                    raise RuntimeError(error)
                yield self.buffers[number % len(self.buffers), : len(self.todo[number])]
                self.send(number + len(self.buffers))
        finally:
            for pipe in self.processes:
                with contextlib.suppress(OSError):
                    pipe.send(None)
            for process in self.processes.values():
                process.join(1)
                process.kill()
                process.join()

    def start(self):
        loop, dataset, num_workers = self.worker
        base = torch.empty((), dtype=torch.int64).random_().item()
        for seed in range(base, base + num_workers):
            mine, theirs = self.context.Pipe()
            arguments = dataset, seed, theirs, self.buffers
            self.processes[mine] = self.context.Process(target=loop, args=arguments, daemon=True)
            self.processes[mine].start()
            theirs.close()

    def send(self, number):
        if number < len(self.todo):
            with contextlib.suppress(OSError):
                list(self.processes)[number % len(self.processes)].send((number, self.todo[number]))

    def arrivals(self):
        due = len(self.todo)
        while due > 0:
            for ready in wait([*self.processes, *(process.sentinel for process in self.processes.values())]):
                if ready not in self.processes or not self.processes[ready].is_alive():
                    raise RuntimeError("a worker ended")
                try:
                    yield ready.recv()
                except (EOFError, ConnectionError) as error:
                    raise RuntimeError("connection lost") from error
                due -= 1

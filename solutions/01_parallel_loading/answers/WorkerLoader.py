"""Known mistakes of exercise WorkerLoader, and right answers in other styles."""

import contextlib
import itertools
from multiprocessing.connection import wait

import torch
import torch.multiprocessing as mp

from course.checks.known_answers import alternative

MISTAKES = {
    "OrdinaryMemory": (
        "The batches lie in memory of the main process. A fork has a copy of it, so what a worker writes is never "
        "seen. Call share_memory_().",
        (".share_memory_()", ""),
    ),
    "Copies": (
        "A batch is copied before it is handed out. Yield the rows of its slot; who keeps them, clones.",
        ("len(batches[number])]", "len(batches[number])].clone()"),
    ),
    "WholeSlots": (
        "A batch that is smaller comes with old rows after its own. Cut the slot to len(indices) rows.",
        (", : len(batches[number])]", "]"),
    ),
    "SizedByTheFirst": (
        "A slot has room for the first batch only. Others may be larger: take the largest.",
        ("max(map(len, batches))", "len(next(iter(batches)))"),
    ),
    "Unordered": (
        "Batches come as they arrive. Pass what arrives through `order`, and yield what that gives.",
        ("enumerate(self.order(self.arrivals(workers, len(batches))))", "self.arrivals(workers, len(batches))"),
    ),
    "StartsAtOnce": (
        "The constructor starts the processes, so they serve only one pass. Start them in __iter__, for every pass.",
        (
            "            base = torch.empty((), dtype=torch.int64).random_().item()\n"
            "            for w in range(self.num_workers):\n"
            "                workers.append(self.started(base + w))\n",
            "",
        ),
        ("len(self.buffers), []", "len(self.buffers), self.workers"),
        (
            "share_memory_()\n",
            "share_memory_()\n        base = torch.empty((), dtype=torch.int64).random_().item()\n"
            "        self.workers = [self.started(base + w) for w in range(num_workers)]\n",
        ),
    ),
    "SlotPerBatch": (
        "There is one slot per batch, so that memory grows with the epoch. Make `slots` of them and reuse them.",
        ("torch.empty(slots,", "torch.empty(max(slots, len(batches)),"),
    ),
    "SameSeed": (
        "All workers get the same seed, and draw the same random numbers. Worker w gets base + w.",
        ("base + w", "base"),
    ),
    "NoBase": (
        "The seed of worker w is w in every pass: each epoch repeats the first. Draw `base` in each pass.",
        ("base + w", "w"),
    ),
    "OneBase": (
        "`base` is drawn once, by the constructor, so that every pass repeats the first. Draw it in __iter__.",
        ("            base = torch.empty((), dtype=torch.int64).random_().item()\n", ""),
        ("base + w", "self.base + w"),
        (
            "share_memory_()\n",
            "share_memory_()\n        self.base = torch.empty((), dtype=torch.int64).random_().item()\n",
        ),
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
        "The slot of a batch is given away before the batch is handed out. Send the next task after the yield.",
        ("                send(number + slots)\n", ""),
        ("yield self", "send(number + slots)\n                yield self"),
    ),
    "NoDaemons": (
        "Workers outlive a main process that ends early. Start them with daemon=True.",
        ("daemon=True", "daemon=False"),
    ),
    "NeverSaysEnd": (
        "No worker is sent None, so none can end by itself. Send it to all before you terminate any.",
        ("pipe.send(None)", "pass"),
        ("            process.join(1)\n", ""),
    ),
    "NotJoined": (
        "The processes are ended but not joined: what is left of each stays in the list of processes. Call join() at "
        "the end, after terminate() too.",
        (
            "        for process, _ in workers:\n            process.join(1)\n            process.terminate()\n"
            "            process.join()\n",
            "",
        ),
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
        "A batch whose item failed is handed out as if nothing had been. Raise RuntimeError there.",
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

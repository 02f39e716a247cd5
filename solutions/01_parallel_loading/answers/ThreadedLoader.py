"""Known mistakes of exercise ThreadedLoader, and right answers in other styles."""

import queue
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from course.checks.engine import alternative, mistake


class _Base:
    """A right loader in pieces, so that each mistake can spoil one of them."""

    def __init__(self, load_into, batches, buffers, threads):
        self.load_into, self.batches, self.buffers, self.threads = load_into, batches, buffers, threads

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        pool = ThreadPoolExecutor(self.threads)
        try:
            yield from self.handed_out(pool)
        finally:
            self.end(pool)

    def handed_out(self, pool):
        running = deque()
        for number, indices in enumerate(self.batches):
            rows = self.slot(number)[: len(indices)]
            running.append((rows, self.tasks(pool, rows, indices)))
            if len(running) == self.ahead():
                yield self.finished(*running.popleft())
        while running:
            yield self.finished(*running.popleft())

    def ahead(self):
        return len(self.buffers)

    def slot(self, number):
        return self.buffers[number % len(self.buffers)]

    def tasks(self, pool, rows, indices):
        return [pool.submit(self.load_into, indices[row], rows[row]) for row in range(len(indices))]

    def finished(self, rows, tasks):
        for task in tasks:
            task.result()
        return rows

    def end(self, pool):
        pool.shutdown(cancel_futures=True)


@mistake("ThreadedLoader", "A copy of the batch is handed out. Yield the rows of its slot; who keeps them, clones.")
class Copies(_Base):
    def finished(self, rows, tasks):
        return super().finished(rows, tasks).clone()


@mistake("ThreadedLoader", "Every batch is written into slot 0. Batch k lies in slot k % slots.")
class OneSlot(_Base):
    def slot(self, number):
        return self.buffers[0]

    def ahead(self):
        return 1


@mistake(
    "ThreadedLoader",
    "A batch is begun when it is asked for, so that no thread works while the caller does. Keep all slots but the "
    "caller's in work.",
)
class NothingAhead(_Base):
    def ahead(self):
        return 1


@mistake(
    "ThreadedLoader",
    "One batch more is begun than there are slots: threads write into the batch that the caller has. Begin it when the "
    "next one is asked for.",
)
class OneTooMany(_Base):
    def handed_out(self, pool):
        running = deque()
        for number, indices in enumerate(self.batches):
            rows = self.slot(number)[: len(indices)]
            if len(running) == len(self.buffers):
                done = self.finished(*running.popleft())
                running.append((rows, self.tasks(pool, rows, indices)))
                yield done
            else:
                running.append((rows, self.tasks(pool, rows, indices)))
        while running:
            yield self.finished(*running.popleft())


@mistake(
    "ThreadedLoader",
    "All batches are begun at once: threads write into slots that are not used up. Begin as many as there are slots, "
    "then one each time that the next batch is asked for.",
)
class AllAtOnce(_Base):
    def ahead(self):
        return len(self.batches)


@mistake(
    "ThreadedLoader",
    "A whole batch is the task of one thread, and the others wait. Divide the items of a batch among the threads.",
)
class OneTaskPerBatch(_Base):
    def tasks(self, pool, rows, indices):
        def fill():
            for index, row in zip(indices, rows, strict=True):
                self.load_into(index, row)

        return [pool.submit(fill)]


@mistake(
    "ThreadedLoader",
    "Nobody asks the tasks for their result, so batches are handed out unfinished and errors are lost. Call result() "
    "on each before the batch is handed out.",
)
class NeverAsks(_Base):
    def finished(self, rows, tasks):
        return rows


@mistake(
    "ThreadedLoader",
    "wait() comes back when the tasks have ended, also by an error, which is lost. Call result() on each.",
)
class LosesErrors(_Base):
    def finished(self, rows, tasks):
        for task in tasks:
            task.exception()
        return rows


@mistake(
    "ThreadedLoader", "A batch that is smaller comes with old rows behind its own. Cut the slot to len(indices) rows."
)
class WholeSlots(_Base):
    def handed_out(self, pool):
        for number, _ in enumerate(super().handed_out(pool)):
            yield self.slot(number)


@mistake("ThreadedLoader", "The threads outlive the pass. Shut the pool down in `finally`, which runs in every case.")
class LeavesThreads(_Base):
    kept = []  # else the pool would end with the last reference to it

    def end(self, pool):
        self.kept.append(pool)


@mistake("ThreadedLoader", "The pool has more threads than were asked for. Give it `threads`.")
class TooManyThreads(_Base):
    def __init__(self, load_into, batches, buffers, threads):
        super().__init__(load_into, batches, buffers, threads + 6)


@mistake("ThreadedLoader", "The last batches are lost: when the list ends, some are still in work. Hand them out too.")
class LosesTheLast(_Base):
    def handed_out(self, pool):
        n = max(len(self.batches) - len(self.buffers) + 1, 0)
        for number, rows in enumerate(super().handed_out(pool)):
            if number < n:
                yield rows


@alternative("ThreadedLoader")
class PairsOfItems(_Base):
    def tasks(self, pool, rows, indices):
        def fill(start):
            for row in range(start, min(start + 2, len(indices))):
                self.load_into(indices[row], rows[row])

        return [pool.submit(fill, start) for start in range(0, len(indices), 2)]


@alternative("ThreadedLoader")
class WithQueues:
    """Threads of its own, that take tasks from a queue."""

    def __init__(self, load_into, batches, buffers, threads):
        self.load_into, self.batches, self.buffers, self.threads = load_into, batches, buffers, threads

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        tasks, batches, slots = queue.SimpleQueue(), [*self.batches], len(self.buffers)
        states = [[len(indices), None, threading.Event()] for indices in batches]
        lock, stop = threading.Lock(), threading.Event()

        def work():
            while (task := tasks.get()) is not None:
                number, row = task
                state, error = states[number], None
                if not stop.is_set():
                    try:
                        self.load_into(batches[number][row], self.buffers[number % slots][row])
                    except Exception as problem:
                        error = problem
                with lock:
                    state[0] -= 1
                    state[1] = state[1] or error
                    if not state[0]:
                        state[2].set()

        def begin(number):
            for row in range(len(batches[number]) if number < len(batches) else 0):
                tasks.put((number, row))

        team = [threading.Thread(target=work, daemon=True) for _ in range(self.threads)]
        try:
            for thread in team:
                thread.start()
            for number in range(slots):
                begin(number)
            for number, (_, _, done) in enumerate(states):
                done.wait()
                if states[number][1]:
                    raise states[number][1]
                yield self.buffers[number % slots][: len(batches[number])]
                begin(number + slots)
        finally:
            stop.set()
            for _ in team:
                tasks.put(None)
            for thread in team:
                thread.join()

"""Known mistakes of exercise ThreadedLoader, and right answers in other styles."""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

from course.engine.known_answers import alternative

MISTAKES = {
    "Copies": (
        "A copy of the batch is yielded. Yield the rows of its slot; the caller clones what it keeps.",
        ("return rows", "return rows.clone()"),
    ),
    "OneSlot": (
        "Every batch is written into slot 0. Batch k lies in slot k % slots.",
        ("number % len(self.buffers)", "0"),
        ("== len(self.buffers)", "== 1"),
    ),
    "NothingAhead": (
        "A batch is started when it is asked for, so no thread works while the caller does. Fill all slots but the "
        "caller's ahead of time.",
        ("== len(self.buffers)", "== 1"),
    ),
    "OneTooMany": (
        "One batch too many is in progress, so threads write into the batch that the caller has. Start it "
        "when the next one is asked for.",
        ("== len(self.buffers)", "> len(self.buffers)"),
    ),
    "AllAtOnce": (
        "All batches start immediately, so threads write into slots that are still in use. Start one per slot, then "
        "one whenever the next batch is asked for.",
        ("== len(self.buffers)", "== len(self.batches)"),
    ),
    "OneTaskPerBatch": (
        "A whole batch is the task of one thread, and the others wait. Divide the items of a batch among the threads.",
        ("first in range(self.threads)", "first in [0]"),
        ("len(indices), self.threads)", "len(indices))"),
    ),
    "NeverAsks": (
        "Nobody asks the tasks for their result, so batches are yielded unfinished and errors are lost. Call "
        "result() on each before the batch is yielded.",
        ("task.result()", "pass"),
    ),
    "LosesErrors": (
        "wait() also returns if a task has failed, and the error is lost. Call result() on each task.",
        ("task.result()", "task.exception()"),
    ),
    "WholeSlots": (
        "A smaller batch comes with old rows after its own rows. Cut the slot to len(indices) rows.",
        (", : len(indices)]", "]"),
    ),
    "LosesTheLast": (
        "The last batches are lost: when the list ends, some are still being written. Yield them too.",
        ("        while running:\n            yield self.finished(*running.popleft())\n", ""),
    ),
}


@alternative
class WithQueues:
    """Threads of its own, that take tasks from a queue."""

    def __init__(self, load_into, batches, buffers, threads):
        self.load_into, self.batches, self.buffers, self.threads = (
            load_into,
            batches,
            buffers,
            threads,
        )

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


@alternative
class PairsOfItems:
    def __init__(self, load_into, batches, buffers, threads):
        self.load_into, self.batches, self.buffers, self.threads = (
            load_into,
            batches,
            buffers,
            threads,
        )

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        running = []
        with ThreadPoolExecutor(self.threads) as pool:
            for number, indices in enumerate(self.batches):
                rows = self.buffers[number % len(self.buffers)][: len(indices)]
                pairs = [
                    (indices[row : row + 2], rows[row : row + 2])
                    for row in range(0, len(indices), 2)
                ]
                running.append((rows, [pool.submit(self.fill, *pair) for pair in pairs]))
                if len(running) == len(self.buffers):
                    yield self.finished(*running.pop(0))
            for rows, tasks in running:
                yield self.finished(rows, tasks)

    def fill(self, indices, rows):
        for index, row in zip(indices, rows, strict=True):
            self.load_into(index, row)

    def finished(self, rows, tasks):
        for task in tasks:
            task.result()
        return rows

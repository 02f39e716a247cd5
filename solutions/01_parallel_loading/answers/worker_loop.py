"""Known mistakes of exercise worker_loop, and right answers in other styles."""

import random
import traceback

import numpy as np
import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "slot_is_the_number": (
        "The number of the batch is taken for that of its slot. There are fewer slots: number % len(buffers).",
        ("batch, error = buffers[number % len(buffers)], None", "error = None"),
        ("batch[row]", "buffers[number][row]"),
    ),
    "always_the_first_slot": (
        "Every batch is written into slot 0, over the one before. Use slot number % len(buffers).",
        ("number % len(buffers)", "0"),
    ),
    "row_is_the_index": (
        "Rows are numbered by the index of the item. Number them by the place in the list: enumerate(indices).",
        ("batch[row]", "batch[index % len(batch)]"),
    ),
    "ends_at_an_error": (
        "An error of one item ends the whole worker. Catch Exception around the batch, send its traceback, and "
        "continue.",
        ("error = traceback.format_exc()", "raise"),
    ),
    "ends_after_an_error": (
        "After an error the loop ends, and later tasks are never built. Send the error, then continue.",
        ("error = traceback.format_exc()", "return pipe.send((number, traceback.format_exc()))"),
    ),
    "words_alone": (
        "The message has the words of the error without the lines that led there. Send traceback.format_exc().",
        (
            "Exception:\n            error = traceback.format_exc()",
            "Exception as problem:\n            error = repr(problem)",
        ),
    ),
    "keeps_the_error": (
        "After one error every later batch is reported as broken, too: the text is kept. Set it to None for each task.",
        ("batch, error = buffers[number % len(buffers)], None", "batch = buffers[number % len(buffers)]"),
        ("    for number", "    error = None\n    for number"),
    ),
    "stacks_first": (
        "The batch is stacked in new memory and then copied. Write each item into its row, or give torch.stack "
        "the slot as `out`.",
        (
            "for row, index in enumerate(indices):\n                batch[row] = dataset[index]",
            "batch[: len(indices)] = torch.stack([dataset[index] for index in indices])",
        ),
    ),
    "sends_the_batch": (
        "The batch itself is sent, all its bytes. It lies in shared memory: send (number, None).",
        ("= dataset[index]", "= dataset[index]\n            error = batch[: len(indices)].clone()"),
    ),
    "error_without_a_number": (
        "The error is sent without the number of its batch. Send (number, text), as after a success.",
        ("error = traceback", "number, error = None, traceback"),
    ),
}


@alternative
def stacked_in_place(dataset, seed, pipe, buffers):
    torch.set_num_threads(1)
    for seeded in (torch.manual_seed, random.seed, lambda s: np.random.seed(s % 2**32)):
        seeded(seed)
    while (task := pipe.recv()) is not None:
        slot = buffers[task[0] % buffers.shape[0]]
        try:
            torch.stack([dataset[i] for i in task[1]], out=slot[: len(task[1])])
        except Exception as error:
            pipe.send((task[0], "".join(traceback.format_exception(error))))
        else:
            pipe.send((task[0], None))


@alternative
def with_break(dataset, seed, pipe, buffers):
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)
    torch.random.manual_seed(seed)
    torch.set_num_threads(1)
    while True:
        task = pipe.recv()
        if task is None:
            break
        number, indices = task
        problem = None
        for k in range(len(indices)):
            try:
                buffers[number % len(buffers), k].copy_(dataset[indices[k]])
            except Exception:
                problem = traceback.format_exc()
                break
        pipe.send((number, problem))

"""Known mistakes of exercise sliding_order, and right answers in other styles."""

import numpy as np
import torch

from course.checks.known_answers import alternative

REFILL = "while rest and len(held) < held_pages:\n            held.append(rest.pop())"
MISTAKES = {
    "Windows": (
        "All held pages are emptied before the next ones come: these are disjoint windows. Put the next page in as "
        "soon as one is empty.",
        (REFILL, "if not held:\n            held, rest = rest[:held_pages], rest[held_pages:]"),
    ),
    "HalfEmpty": (
        "New pages come only when the buffer is half empty. Take the next page in as soon as one is empty.",
        (
            REFILL,
            "if len(held) <= held_pages // 2:\n"
            "            held, rest = (held + rest)[:held_pages], rest[held_pages - len(held) :]",
        ),
    ),
    "InTurns": (
        "The held pages take turns, a row of each. Pick a page at random for each row.",
        ("int(pick * len(held))", "len(order) % len(held)"),
    ),
    "WeightedByRows": (
        "The row is picked among all rows that are held, so full pages are picked more often than those that are "
        "nearly empty. Pick the page first, each as likely as the others.",
        ("int(pick * len(held))", "[i for i, page in enumerate(held) for _ in page][int(pick * sum(map(len, held)))]"),
    ),
    "LastMoreOften": (
        "A pick above the number of held pages takes the last one, which is then likelier than the others. Pick among "
        "the len(held) pages that are there.",
        ("int(pick * len(held))", "min(int(pick * held_pages), len(held) - 1)"),
    ),
    "WholePages": (
        "All rows of a picked page come together. Take one row of it, and pick again for the next row.",
        ("rng.random(rows)", "rng.random(len(rest))"),
        ("order.append(held[k].pop())\n        if not held[k]:\n            del held[k]", "order += held.pop(k)"),
    ),
    "RowsInFileOrder": (
        "The rows of a page come in the order of the file. Shuffle the rows of each page.",
        (
            "rng.permutation(np.arange(start, min(start + page_rows, rows)))",
            "np.arange(start, min(start + page_rows, rows))[::-1]",
        ),
    ),
    "PagesInFileOrder": (
        "The pages come in the order of the file. Shuffle the pages before they are taken into the buffer.",
        ("rng.permutation(np.arange(0, rows, page_rows))", "np.arange(0, rows, page_rows)[::-1]"),
    ),
    "AllPagesHeld": (
        "More pages are held than `held_pages`: all rows of the file are mixed. Take a page in only if there is room.",
        ("rest and len(held) < held_pages", "rest"),
    ),
    "RestOfTheBufferLost": (
        "The rows that are left in the buffer when no page is left to come are lost. Continue until it is empty.",
        ("        while rest", "        if order and not rest:\n            break\n        while rest"),
    ),
    "ShortPageLost": (
        "The short last page is left out: rows // page_rows counts full pages only. Round up.",
        ("    rng =", "    rows = rows // page_rows * page_rows\n    rng ="),
    ),
    "OneOrderForEver": (
        "Every epoch has the same order, and so the same batches. Let the generator depend on epoch.",
        ("(seed, epoch)", "seed"),
    ),
    "SeedPlusEpoch": (
        "seed + epoch is one number for many pairs: epoch 1 of seed 0 is epoch 0 of seed 1, so two runs share their "
        "orders. Mix the two numbers: np.random.default_rng((seed, epoch)).",
        ("(seed, epoch)", "seed + epoch"),
    ),
    "SeedsTheProgram": (
        "random.seed reseeds the whole program. Make your own generator: np.random.default_rng((seed, epoch)) or "
        "random.Random.",
        ("rng = np.random.default_rng((", "rng = np.random\n    rng.seed(("),
    ),
}


@alternative
def one_slot_per_page(rows, page_rows, held_pages, seed, epoch):
    rng = np.random.default_rng(np.random.SeedSequence([seed, epoch]))
    pages = iter(rng.permutation(-(-rows // page_rows)).tolist())
    slots = [None] * held_pages
    order = np.empty(rows, np.int64)
    n = 0
    for slot in range(held_pages):
        slots[slot] = next(pages, None)
    slots = [page for page in slots if page is not None]
    left = {}
    while slots:
        slot = int(rng.integers(len(slots)))
        page = slots[slot]
        mine = left.setdefault(page, rng.permutation(np.arange(page * page_rows, min(rows, (page + 1) * page_rows))))
        order[n], left[page], n = mine[0], mine[1:], n + 1
        if len(mine) == 1:
            following = next(pages, None)
            slots[slot : slot + 1] = [] if following is None else [following]
    return torch.from_numpy(order)


@alternative
def queue_of_pages(rows, page_rows, held_pages, seed, epoch):
    rng = torch.Generator().manual_seed(int(np.random.SeedSequence((seed, epoch)).generate_state(1)[0]))
    queue = list(torch.arange(rows).split(page_rows))
    queue = [queue[i] for i in torch.randperm(len(queue), generator=rng)]
    queue = [page[torch.randperm(len(page), generator=rng)].tolist() for page in queue]
    held, queue, order = queue[:held_pages], queue[held_pages:], []
    for _ in range(rows):
        k = int(torch.randint(len(held), (), generator=rng))
        order.append(held[k].pop(0))
        if not held[k]:
            held[k : k + 1] = [queue.pop(0)] if queue else []
    return torch.tensor(order, dtype=torch.int64)

"""Known mistakes of exercise quasi_random_order, and right answers in other styles."""

import numpy as np
import torch

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "RowsInFileOrder": (
        "The pages are shuffled, their rows are not: within a page the file's order stays. Shuffle all rows of a "
        "window together.",
        ("rng.shuffle(order[start : start + window])", "pass"),
    ),
    "PageByPage": (
        "The rows are shuffled page by page, so a batch still comes from one page or two. Put the rows of all pages of "
        "the window together first, and shuffle those.",
        ("window = window_pages * page_rows", "window = page_rows"),
    ),
    "InTurns": (
        "The pages of a window take turns, a row of each in the order of the file. That is not random: shuffle the "
        "rows of the window.",
        (
            "rng.shuffle(order[start : start + window])",
            'part = order[start : start + window]\n        part[:] = part[(part % page_rows).argsort(kind="stable")]',
        ),
    ),
    "AdjacentPages": (
        "A window is a run of pages as they lie in the file; only the windows are shuffled. Shuffle the pages first, "
        "then cut the windows.",
        (
            "rng.permutation(rows // page_rows)",
            "np.arange(rows // page_rows)\n"
            "    windows = np.split(pages, range(window_pages, len(pages), window_pages))\n"
            "    pages = np.concatenate([windows[i] for i in rng.permutation(len(windows))])",
        ),
    ),
    "PagesInFileOrder": (
        "The pages keep the order of the file, rows only move within a window. Shuffle the pages before you cut them.",
        ("rng.permutation(", "np.arange("),
    ),
    "ShortPageLost": (
        "The rows of the short last page are lost: rows // page_rows counts the full pages only. Append the rows "
        "from there on.",
        ("[order, np.arange(len(order), rows)]", "[order]"),
    ),
    "BeyondTheEnd": (
        "The short last page gets row numbers beyond the end of the file. Keep those that are below `rows`.",
        ("np.arange(len(order), rows)", "np.arange(len(order), -(-rows // page_rows) * page_rows)"),
    ),
    "ShortInTheMiddle": (
        "The short page stays where the shuffle put it, so the windows after it are not whole pages. Draw an order of "
        "the full pages, and append the short one.",
        ("permutation(rows // page_rows)", "permutation(-(-rows // page_rows))"),
        ("np.concatenate([order, np.arange(len(order), rows)])", "order[order < rows]"),
    ),
    "OneOrderForEver": (
        "Every epoch has the same order, and so the same batches. Let the generator depend on epoch.",
        ("(seed, epoch)", "seed"),
    ),
    "SamePagesTogether": (
        "Every epoch shuffles the pages the same way, so the same pages always share a window. Shuffle the pages "
        "with the epoch, too.",
        ("rng.permutation", "np.random.default_rng(seed).permutation"),
    ),
    "SeedPlusEpoch": (
        "seed + epoch is one number for many pairs: epoch 1 of seed 0 is epoch 0 of seed 1, so two runs share their "
        "orders. Mix the two numbers: np.random.default_rng((seed, epoch)).",
        ("(seed, epoch)", "seed + epoch"),
    ),
    "RowsByTheGlobal": (
        "The rows of a window are shuffled by the global random numbers, so no order can be repeated. Take a "
        "generator that seed and epoch decide.",
        ("rng.shuffle", "np.random.shuffle"),
    ),
    "ShuffledAlike": (
        "All windows are shuffled by one and the same permutation. Make the generator once, before the first window, "
        "not once per window.",
        ("rng.shuffle", "np.random.default_rng((seed, epoch)).shuffle"),
    ),
    "SeedsTheProgram": (
        "np.random.seed reseeds the whole program. Make your own generator: np.random.default_rng((seed, epoch)).",
        ("rng = np.random.default_rng((", "rng = np.random\n    rng.seed(("),
    ),
    "OneGreatWindow": (
        "Windows are ignored: all rows are shuffled together, so every row takes its own read. Cut the pages into "
        "windows, and shuffle within each.",
        ("window = window_pages * page_rows", "window = rows"),
    ),
    "WindowOfRows": (
        "A window is cut at window_pages rows, not pages. In rows it is window_pages * page_rows long, for the rows of "
        "all its pages are shuffled together.",
        ("window = window_pages * page_rows", "window = window_pages"),
    ),
    "LoopOverRows": (
        "A Python loop goes over all rows (random.shuffle is one, too). Shuffle with NumPy or torch: rng.shuffle, "
        "rng.permutation, torch.randperm.",
        (
            "rng.shuffle(order[start : start + window])",
            "part = order[start : start + window]\n        part[:] = sorted(part, key=lambda row: rng.random())",
        ),
    ),
}


@mistake(
    "Windows are cut from the file, and then they are shuffled: the pages of a window are neighbours. Shuffle the "
    "pages first, then cut them into windows."
)
def windows_of_the_file(rows, page_rows, window_pages, seed, epoch):
    rng = np.random.default_rng((seed, epoch))
    borders = range(page_rows * window_pages, rows, page_rows * window_pages)
    windows = np.split(np.arange(rows), borders)
    order = [rng.permutation(windows[place]) for place in rng.permutation(len(windows))]
    return torch.from_numpy(np.concatenate(order))


@alternative
def page_lists_of_torch(rows, page_rows, window_pages, seed, epoch):
    rng = torch.Generator().manual_seed(
        int(np.random.SeedSequence((seed, epoch)).generate_state(1)[0])
    )
    *full, last = torch.arange(rows).split(page_rows)
    if len(last) == page_rows:
        full, last = [*full, last], torch.arange(0)
    pages = [full[page] for page in torch.randperm(len(full), generator=rng).tolist()] + [last] * (
        len(last) > 0
    )
    windows = [torch.cat(pages[i : i + window_pages]) for i in range(0, len(pages), window_pages)]
    return torch.cat([window[torch.randperm(len(window), generator=rng)] for window in windows])


@alternative
def sorted_by_window_and_key(rows, page_rows, window_pages, seed, epoch):
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch])))
    place = np.append(
        rng.permutation(rows // page_rows), rows // page_rows
    )  # of each page, the short one last
    window = (place // window_pages).repeat(page_rows)[:rows]
    return torch.as_tensor(np.lexsort((rng.random(rows), window)))


@alternative
def streams_for_pages_and_rows(rows, page_rows, window_pages, seed, epoch):
    for_pages, for_rows = (
        np.random.default_rng(s) for s in np.random.SeedSequence((seed, epoch)).spawn(2)
    )
    starts = np.append(for_pages.permutation(rows // page_rows), rows // page_rows) * page_rows
    order = np.concatenate([np.arange(s, min(s + page_rows, rows)) for s in starts])
    cuts = np.arange(window_pages * page_rows, len(order), window_pages * page_rows)
    return torch.from_numpy(
        np.concatenate([for_rows.permutation(part) for part in np.split(order, cuts)])
    )

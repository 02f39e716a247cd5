"""Known mistakes of exercise shuffle_buffer, and right answers in other styles."""

import itertools

import numpy as np

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "rest_forgotten": (
        "The items that are left in the buffer at the end never come out. Yield them, in random order.",
        ("    rng.shuffle(buffer)\n    yield from buffer\n", ""),
    ),
    "rest_in_order": (
        "The items that are left at the end leave in the order of the buffer. Shuffle them first.",
        ("    rng.shuffle(buffer)\n", ""),
    ),
    "first_in_first_out": (
        "The item at the first place always leaves, so most items keep the order of the stream. Draw the place at "
        "random.",
        ("rng.integers(size)", "0"),
    ),
    "newest_may_leave": (
        "The item that has just come may leave before it was in the buffer. Draw from the full buffer, then put it in.",
        (
            "        i = rng.integers(size)\n",
            "        i = rng.integers(size + 1)\n        buffer.append(item)\n",
        ),
        ("        buffer[i] = item\n", "        buffer[i] = buffer[-1]\n        buffer.pop()\n"),
    ),
    "overwritten": (
        "The new item is written over the one that should leave, which is lost. Yield first.",
        (
            "        yield buffer[i]\n        buffer[i] = item\n",
            "        buffer[i] = item\n        yield buffer[i]\n",
        ),
    ),
    "last_place_never": (
        "One place of the buffer is never drawn, so its item stays until the end. Draw from all `size` places.",
        ("rng.integers(size)", "rng.integers(max(1, size - 1))"),
    ),
    "one_less": (
        "The buffer holds one item less than `size`. Fill it up before the first item leaves.",
        ("len(buffer) < size", "len(buffer) < max(1, size - 1)"),
        ("rng.integers(size)", "rng.integers(len(buffer))"),
    ),
    "its_own_generator": (
        "The generator is made inside, so every epoch has the same order. Use the `rng` that you get.",
        ("    buffer = []\n", "    buffer = []\n    rng = np.random.default_rng(0)\n"),
    ),
    "global_numbers": (
        "The places come from the global random numbers, so the order does not depend on `rng`. Use `rng`.",
        ("rng.integers(size)", "np.random.randint(size)"),
    ),
}


@mistake(
    "The whole stream is taken before the first item leaves, so all of it is held. Hold `size` items."
)
def all_in_memory(stream, size, rng):
    items = list(stream)
    rng.shuffle(items)
    yield from items


@mistake(
    "The buffer is emptied before it is filled again: this shuffles blocks, in which items mix only with their "
    "neighbours. Let one item leave for each that comes."
)
def block_by_block(stream, size, rng):
    items = iter(stream)
    while block := list(itertools.islice(items, size)):
        rng.shuffle(block)
        yield from block


@mistake(
    "Items leave before the buffer is full, so the first ones are hardly shuffled. Fill it first."
)
def leaves_while_filling(stream, size, rng):
    buffer = []
    for number, item in enumerate(stream):
        buffer.append(item)
        if len(buffer) > size or (number % 2 and size > 1):
            yield buffer.pop(rng.integers(len(buffer) - 1))
    rng.shuffle(buffer)
    yield from buffer


@alternative
def fill_then_replace(stream, size, rng):
    items = iter(stream)
    buffer = list(itertools.islice(items, size))
    for item in items:
        place = int(rng.random() * size)
        buffer[place], leaving = item, buffer[place]
        yield leaving
    for place in rng.permutation(len(buffer)):
        yield buffer[place]


@alternative
def ask_when_one_leaves(stream, size, rng):
    items = iter(stream)
    buffer = list(itertools.islice(items, size))
    is_over = False
    while buffer:
        place = rng.choice(len(buffer))
        yield buffer[place]
        following = [] if is_over else list(itertools.islice(items, 1))
        is_over = not following
        if following:
            buffer[place] = following[0]
        else:
            buffer.pop(place)


@alternative
def a_table_of_places(stream, size, rng):
    held = {}
    for item in stream:
        if len(held) == size:
            place = np.floor(rng.uniform(0, size)).astype(int)
            yield held.pop(int(place))
        else:
            place = len(held)
        held[int(place)] = item
    rest = list(held.values())
    yield from (rest[i] for i in rng.permutation(len(rest)))

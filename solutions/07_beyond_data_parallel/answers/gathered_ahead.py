"""Known mistakes of exercise gathered_ahead, and right answers in other styles."""

from course.engine.known_answers import alternative, mistake

START = """\
        if following < len(shards):
            handle = start_gather(shards[following])
"""
YIELD = "        yield whole\n"

MISTAKES = {
    "starts_after_computing": (
        "The next gather starts after the caller has computed, so nothing overlaps. Start it before the yield.",
        (START + YIELD, YIELD + START),
    ),
    "last_layer_missing": (
        "The last layer is not yielded. It has no next gather, but it computes, too.",
        ("len(shards) + 1)", "len(shards))"),
    ),
    "gathers_the_first_again": (
        "After the last layer the first one is gathered again. Start no gather if no layer is left.",
        (
            "        if following < len(shards):\n            handle = start_gather(shards[following])\n",
            "        handle = start_gather(shards[following % len(shards)])\n",
        ),
    ),
    "starts_before_the_wait": (
        "The next gather starts before this layer has arrived, one layer too early. Wait first.",
        ("        whole = handle.wait()\n", "        arriving = handle\n"),
        ("        yield whole\n", "        yield arriving.wait()\n"),
    ),
    "the_same_layer": (
        "Each gather brings the layer that was just used. Start the gather of the following shard.",
        ("start_gather(shards[following])", "start_gather(shards[following - 1])"),
    ),
    "keeps_all_layers": (
        "All layers stay alive, because a list holds them. Hold the one that is used and the next.",
        (
            "    handle = start_gather(shards[0])\n",
            "    handle, kept = start_gather(shards[0]), []\n",
        ),
        (
            "        whole = handle.wait()\n",
            "        whole = handle.wait()\n        kept.append(whole)\n",
        ),
    ),
    "a_name_holds_the_layer_before": (
        "A name still holds the layer before, so three live together. Keep no layer after its yield.",
        (
            "    handle = start_gather(shards[0])\n",
            "    handle, whole = start_gather(shards[0]), None\n",
        ),
        (
            "        whole = handle.wait()\n",
            "        before = whole\n        whole = handle.wait()\n",
        ),
    ),
    "starts_before_it_waits": (
        "The next gather starts before this layer has arrived, so it is early by one layer. Wait first.",
        ("        whole = handle.wait()\n", "        arriving = handle\n"),
        ("        yield whole\n", "        whole = arriving.wait()\n        yield whole\n"),
    ),
}


@mistake(
    "Each gather is waited for where it starts, so nothing overlaps. Start the next one before you yield."
)
def one_after_the_other(shards, start_gather):
    for shard in shards:
        yield start_gather(shard).wait()


@mistake(
    "All gathers start before the first layer computes, so all layers are in memory together. Start one ahead."
)
def all_before_the_first(shards, start_gather):
    handles = [start_gather(shard) for shard in shards]
    for handle in handles:
        yield handle.wait()


@mistake(
    "All layers are gathered before the first one computes. Write a generator: yield each layer from the loop."
)
def in_a_list(shards, start_gather):
    return [start_gather(shard).wait() for shard in shards]


@mistake(
    "The next gather is waited for before this layer computes, so nothing overlaps. Wait for it after the yield."
)
def waits_for_the_next(shards, start_gather):
    whole = start_gather(shards[0]).wait()
    for shard in shards[1:]:
        following = start_gather(shard).wait()
        yield whole
        whole = following
    yield whole


@alternative
def last_one_apart(shards, start_gather):
    handle = start_gather(shards[0])
    for shard in shards[1:]:
        whole = handle.wait()
        handle = start_gather(shard)
        yield whole
    yield handle.wait()


@alternative
def from_a_queue(shards, start_gather):
    waiting = list(reversed(shards))
    on_its_way = start_gather(waiting.pop())
    while on_its_way:
        arrived = on_its_way.wait()
        on_its_way = start_gather(waiting.pop()) if waiting else None
        yield arrived

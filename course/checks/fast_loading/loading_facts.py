"""Probe of exercise loading_facts."""

from course.checks.engine import exercise

LOADING_TOPICS = {
    "A": "memory that is promised",
    "B": "a mapped file larger than the memory",
    "C": "os_cache=True with too little memory",
    "D": "who holds the memory pages of a mapped file",
    "E": "the second epoch of a mapped file",
    "F": "bypassing the cache when the file fits in memory",
    "G": "what the quasi-random order reads",
    "H": "which orders the quasi-random order can bring",
    "I": "what pinned memory is for",
    "J": "when the source of a copy may be refilled",
    "K": "what O_DIRECT leaves out",
    "L": "what an iteration of conjugate gradients costs",
}


@exercise(isolated=True, quiz=True)
def loading_facts(answer, device, seed):
    """Each verdict is a fact; the first wrong one decides the diagnosis."""
    verdicts = answer()
    yield "returns a dictionary", "dict" if isinstance(verdicts, dict) else type(verdicts).__name__
    yield "with the letters A to L", sorted(map(str, verdicts))
    yield "each has True or False", {letter: type(verdicts[letter]).__name__ for letter in LOADING_TOPICS}
    for letter, topic in LOADING_TOPICS.items():
        yield f"{letter}: {topic}", verdicts[letter]

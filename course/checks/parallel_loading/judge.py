"""Probe of exercise judge."""

from course.checks.engine import exercise

TOPICS = {
    "A": "what the processes share",
    "B": "who builds a batch",
    "C": "what a message holds",
    "D": "what pin_memory is for",
    "E": "how many batches are under way",
}


@exercise(quiz=True)
def judge(answer, device, seed):
    """The verdicts one by one; the first wrong one alone decides what is said about it."""
    verdicts = answer()
    yield "returns a dictionary", "dict" if isinstance(verdicts, dict) else type(verdicts).__name__
    yield "with the letters A to E", sorted(map(str, verdicts))
    yield "each has True or False", {letter: type(verdicts[letter]).__name__ for letter in TOPICS}
    for letter, topic in TOPICS.items():
        yield f"{letter}: {topic}", verdicts[letter]

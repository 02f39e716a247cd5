"""Probe of exercise judge."""

from course.checks.engine import exercise

TOPICS = {
    "A": "who the main process is",
    "B": "what the processes share",
    "C": "who builds a batch",
    "D": "how many messages, and where the pixels go",
    "E": "when workers pay",
    "F": "what os.cpu_count() counts",
    "G": "what pin_memory is for",
    "H": "how many batches are under way",
}


@exercise(isolated=True, quiz=True)
def judge(answer, device, seed):
    """The verdicts one by one; the first wrong one alone decides what is said about it."""
    verdicts = answer()
    yield "returns a dictionary", "dict" if isinstance(verdicts, dict) else type(verdicts).__name__
    yield "with the letters A to H", sorted(map(str, verdicts))
    yield "each has True or False", {letter: type(verdicts[letter]).__name__ for letter in TOPICS}
    for letter, topic in TOPICS.items():
        yield f"{letter}: {topic}", verdicts[letter]

"""The verbs that an instructor's installation adds to the command `course`.

pyproject.toml names this table to it.
"""

# verb -> (module, the command in it, what `course --help` says)
VERBS = {
    "grade": (
        "instructor.grading.command",
        "grade",
        "Grade a class, each submission in a sandbox.",
    ),
    "release": (
        "instructor.release.command",
        "release",
        "Write the folder that a class gets, without solutions.",
    ),
    "build": ("instructor.authoring.command", "build", "Build the notebooks from the masters."),
    "guide": (
        "instructor.show.guide",
        "guide",
        "Print the instructor's guide to a unit, made from the unit.",
    ),
    "slides": ("instructor.show.slides", "slides", "Make slides of the opening of a part."),
    "book": ("instructor.show.book", "book", "Make static pages of all parts, with a search."),
    "demo": (
        "instructor.grading.command",
        "demo",
        "Build everything and grade two submissions per unit.",
    ),
    "new": ("instructor.authoring.command", "new", "Start a new exercise."),
    "bench": ("instructor.bench.command", "bench", "Run a benchmark."),
}

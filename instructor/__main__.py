"""`python -m instructor VERB`: the command `course` with this package's verbs where no package is
installed, as on a hub, where PYTHONPATH alone decides what a server imports.

pyproject.toml names the same entry points to an installation.
"""

from importlib.metadata import EntryPoint

from course import cli

CLASS_PROGRESS = "instructor.grading.class_progress:class_progress"

if __name__ == "__main__":
    cli.more_points += [
        EntryPoint("instructor", "instructor.verbs:VERBS", "course.verbs"),
        EntryPoint("instructor", CLASS_PROGRESS, "course.class_progress"),
    ]
    cli.main()

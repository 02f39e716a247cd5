"""What the first cell of a notebook says on a service that did not have the course.

instructor/release/wheel.py writes that cell.
"""

from importlib.metadata import PackageNotFoundError, version

from course.commands.doctor import look
from course.errors import CourseError
from course.system.folders import data_folder


def installed(url: str) -> str:
    """One line: where the course came from, which torch and GPU there are, where answers go.

    Raises: CourseError if there is no torch.
    """
    try:
        torch = version("torch")
    except PackageNotFoundError:
        advice = "%pip install torch torchvision, then run this cell again."
        raise CourseError(f"looked for torch, found none; {advice}") from None
    gpu = look("GPU")
    return (
        f"The course is installed from {url}. torch {torch}; GPU: {gpu.sentence}. {gpu.advice} "
        f"Answers and data: {data_folder()} (COURSE_DATA names another folder)."
    )

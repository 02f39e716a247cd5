"""Where nbgrader keeps a course: its configuration and folders, read as its own commands do."""

from pathlib import Path
from typing import NamedTuple

from nbgrader.apps import NbGrader
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Application, Config

from course.system.folders import ROOT


class CourseFolders(NamedTuple):
    """What nbgrader knows of a course folder."""

    config: Config
    directory: CourseDirectory


def course_folders(root: Path = ROOT) -> CourseFolders:
    """nbgrader's configuration and its CourseDirectory for the course folder `root`.

    The configuration is that of `root`, then of the repository, then of this user and machine, as
    nbgrader reads it.
    """
    app = NbGrader(raise_config_file_errors=True)
    places = [str(Path(root).resolve()), str(ROOT), *app.config_file_paths]
    Application.load_config_file(app, "nbgrader_config", path=places)
    return CourseFolders(app.config, CourseDirectory(config=app.config, root=places[0]))

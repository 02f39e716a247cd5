"""Where the course lies on the disk, and where its data do."""

import os
from pathlib import Path

# the folder that holds course/, notebooks/ and, for instructors, all the rest
ROOT = Path(__file__).parents[2]
# what notebook services keep
LASTING = (
    "/content/drive/MyDrive",
    "/kaggle/working",
    "/home/ec2-user/SageMaker",
)


def data_folder(folder: str | os.PathLike | None = None) -> Path:
    """The Path of the data folder: `folder`, else COURSE_DATA, else `data/` next to the package.

    Of a package from a wheel (instructor/release/wheel.py) it is where a notebook service keeps
    files, else in the home folder.
    """
    beside = ROOT
    if beside.with_suffix(".pth").is_file():
        beside = next(filter(Path.is_dir, map(Path, LASTING)), Path.home()) / "scaling-pytorch"
    return Path(folder or os.environ.get("COURSE_DATA") or beside / "data")

"""Prepare Labeled Faces in the Wild: archive or folder -> *<data>/lfw/lfw/PERSON/...jpg* ->
course.datasets.lfw.

    python data_scripts/lfw.py --download
    python data_scripts/lfw.py --from ARCHIVE_OR_FOLDER

The host of the set, vis-www.cs.umass.edu, is gone. Two of its archives are still served by figshare
for scikit-learn (sklearn/datasets/_lfw.py). The deep-funneled images lie in
github.com/umass-vis-lfw/umass-vis-lfw.github.io beside
others: clone it and give its folder images_deepfunneled to --from.
"""

import argparse
import io
import os
import re
import sys
from pathlib import Path

from archives import read_files
from download import download
from PIL import Image
from tqdm import tqdm

from course.datasets.lfw import SIZE, prepared_folder
from course.errors import CourseError, command
from course.system.files import atomic_folder

ARCHIVES = {
    "original": "lfw.tgz",
    "funneled": "lfw-funneled.tgz",
    "deepfunneled": "lfw-deepfunneled.tgz",
}
MIRRORS = {  # as in scikit-learn
    "original": "https://ndownloader.figshare.com/files/5976018",
    "funneled": "https://ndownloader.figshare.com/files/5976015",
}
CHECKSUMS = {
    # scikit-learn's
    "original": "sha256:055f7d9c632d7370e6fb4afc7468d40f970c34a80d4c6f50ffec63f5a8d536c0",
    "funneled": "sha256:b47c8422c8cded889dc5a13418c4bc2abbda121092b3533a83306f90d900100a",
    "deepfunneled": "md5:68331da3eb755a505a502b5aacb3c201",  # torchvision's
}
N_IMAGES = 13_233  # of 5,749 people, counted in lfw-names.txt
IMAGE = re.compile(r"(?P<root>(?:.*/)?)(?P<person>[\w-]+)/(?P=person)_(?P<number>\d{4})\.jpg")
LARGEST = 1 << 20  # bytes of an image; those of LFW have some 14 kB
BLOCK = 1 << 18  # bytes downloaded at a time
ADVICE = "Make room or get write permission there, or choose another folder with --data; what was there is unchanged."

LICENCE = (
    "LFW is for research; its photographs belong to their owners: do not pass them on, no commercial use.\n"
    "Cite: Huang, Ramesh, Berg and Learned-Miller, Labeled Faces in the Wild, UMass Amherst TR 07-49, 2007."
)


@command
def main(argv=None):
    parser = argparse.ArgumentParser(
        description="Prepare the faces of LFW for the course.", epilog=LICENCE
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--download", action="store_true", help="get an archive of 180 to 240 MB; resumes"
    )
    source.add_argument(
        "--from", dest="path", type=Path, help="a .tgz, .tar or .zip archive, or a folder"
    )
    parser.add_argument(
        "--variant", choices=ARCHIVES, help="which archive to download (default: original)"
    )
    parser.add_argument(
        "--data", type=Path, help="the data folder (default: COURSE_DATA, else data/)"
    )
    parser.add_argument(
        "--mirror",
        metavar="URL",
        help="where --download finds lfw.tgz, or that of --variant, instead",
    )
    args = parser.parse_args(argv)
    target = prepared_folder(args.data)
    if args.path and (args.variant or args.mirror):
        raise CourseError(
            "--variant and --mirror belong to --download; --from takes what it finds."
        )
    if args.path and not os.path.exists(args.path):
        raise CourseError(
            f"--from {args.path}: there is no such file or folder, or it may not be entered."
        )
    print(LICENCE)
    prepare(
        args.path or get_archive(args.variant or "original", target.parent, args.mirror), target
    )


def get_archive(variant, folder, mirror=None):
    """The Path of the archive of `variant` in `folder`, downloaded from `mirror`/NAME unless it is
    there already.

    Raises: CourseError if no mirror is known, and as download.download.
    """
    archive = folder / ARCHIVES[variant]
    if not (mirror or variant in MIRRORS):
        raise CourseError(
            f"no mirror of {archive.name} is known; clone github.com/umass-vis-lfw/umass-vis-lfw.github.io and run: "
            "python data_scripts/lfw.py --from CLONE/images_deepfunneled (or name the archive's place with --mirror)."
        )
    url = f"{mirror.rstrip('/')}/{archive.name}" if mirror else MIRRORS[variant]
    download(url, archive, CHECKSUMS[variant], BLOCK)
    return archive


def prepare(path, target):
    """Replace the folder `target` by the images found at `path`, once all of them are complete.

    Raises: CourseError if there are none, several folders of them, or one that is damaged or not of
    LFW.
    """
    roots, people, names = set(), set(), set()
    with (
        atomic_folder(target, ADVICE) as new,
        tqdm(desc=path.name, unit=" images", disable=None) as bar,
    ):
        for label, content in read_files(path, IMAGE, LARGEST, "LFW"):
            match = IMAGE.fullmatch(label)
            check_image(f"{path}: {label}", content)
            roots.add(match["root"])
            if len(roots) > 1:
                raise CourseError(
                    f"{path} holds several sets of faces ({', '.join(sorted(roots))}); name one of them."
                )
            name = Path(match["person"], f"{match['person']}_{match['number']}.jpg")
            if name in names:
                raise CourseError(f"{path} holds {label} twice; get it again.")
            names.add(name)
            if len(names) > N_IMAGES:  # stop before another set fills the disk
                raise CourseError(
                    f"{path} holds more than the {N_IMAGES:,} images of LFW; it is another set."
                )
            if match["person"] not in people:
                people.add(match["person"])
                (new / match["person"]).mkdir()
            (new / name).write_bytes(content)
            bar.update()
        if not names:
            raise CourseError(
                f"found nothing of LFW in {path}; looked for PERSON/PERSON_0001.jpg and for archives."
            )
    missing = f" (all of LFW are {N_IMAGES:,})" if len(names) < N_IMAGES else ""
    print(f"{len(names):,} images of {len(people):,} people{missing} -> {target}")


def check_image(label, content):
    """Raise a CourseError with `label` unless the bytes `content` are a complete JPEG file of 250 x
    250 pixels.
    """
    whole = (
        content.startswith(b"\xff\xd8")
        and content.endswith(b"\xff\xd9")
        and len(content) <= LARGEST
    )
    try:
        with Image.open(io.BytesIO(content) if whole else io.BytesIO(), formats=["JPEG"]) as image:
            size = image.size
            image.load()
    except (OSError, Image.DecompressionBombError):
        size = None
    if size is None:
        raise CourseError(f"{label} is not a whole JPEG file; get it again.")
    if size != (SIZE, SIZE):
        raise CourseError(
            f"{label} has {size[0]} x {size[1]} pixels, but an image of LFW has {SIZE} x {SIZE}."
        )


if __name__ == "__main__":
    main(sys.argv[1:])

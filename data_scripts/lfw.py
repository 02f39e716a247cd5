"""Prepare Labeled Faces in the Wild: archive or folder -> *<data>/lfw/* -> course.datasets.lfw.

    python data_scripts/lfw.py --download
    python data_scripts/lfw.py --from ARCHIVE_OR_FOLDER

The host of the set, vis-www.cs.umass.edu, is gone. Two of its archives are still served by figshare
for scikit-learn (sklearn/datasets/_lfw.py). The deep-funneled images lie in
github.com/umass-vis-lfw/umass-vis-lfw.github.io, with others: clone it and give its folder
images_deepfunneled to --from.
"""

import argparse
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
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
IMAGE_BYTES_MAX = 1 << 20  # those of LFW have some 14 kB
BLOCK_BYTES = 1 << 18  # downloaded at a time
ADVICE = (
    "Make room or get write permission there, or choose another folder with --data; "
    "what was there is unchanged."
)

LICENCE = (
    "LFW is for research; its photographs belong to their owners: "
    "do not pass them on, no commercial use.\n"
    "Cite: Huang, Ramesh, Berg and Learned-Miller, Labeled Faces in the Wild, "
    "UMass Amherst TR 07-49, 2007."
)


@command
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line `argv`."""
    args = parse(argv)
    target = prepared_folder(args.data)
    print(LICENCE)
    if args.download:
        args.path = get_archive(args.variant or "original", target.parent, args.mirror)
    prepare(args.path, target)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The flags.  Raises: CourseError if they contradict each other, or name a missing path."""
    parser = argparse.ArgumentParser(
        description="Prepare the faces of LFW for the course.", epilog=LICENCE
    )
    source = parser.add_mutually_exclusive_group(required=True)
    network = "get an archive of 180 to 240 MB; resumes"
    local = "a .tgz, .tar or .zip archive, or a folder"
    variant = "which archive to download (default: original)"
    data = "the data folder (default: COURSE_DATA, else data/)"
    mirror = "where --download finds lfw.tgz, or that of --variant, instead"
    source.add_argument("--download", action="store_true", help=network)
    source.add_argument("--from", dest="path", type=Path, help=local)
    parser.add_argument("--variant", choices=ARCHIVES, help=variant)
    parser.add_argument("--data", type=Path, help=data)
    parser.add_argument("--mirror", metavar="URL", help=mirror)
    args = parser.parse_args(argv)
    if args.path and (args.variant or args.mirror):
        raise CourseError(
            "--variant and --mirror belong to --download; --from takes what it finds."
        )
    if args.path and not os.path.exists(args.path):
        raise CourseError(
            f"--from {args.path}: there is no such file or folder, or it may not be entered."
        )
    return args


def get_archive(variant: str, folder: Path, mirror: str | None = None) -> Path:
    """The Path of the archive of `variant` in `folder`, downloaded unless it is there already.

    Args:
        mirror: a URL, below which the archive has its usual name; default the one in MIRRORS.

    Raises: CourseError if no mirror is known, and as download.download.
    """
    archive = folder / ARCHIVES[variant]
    if not (mirror or variant in MIRRORS):
        raise CourseError(
            f"no mirror of {archive.name} is known; "
            "clone github.com/umass-vis-lfw/umass-vis-lfw.github.io and run: "
            "python data_scripts/lfw.py --from CLONE/images_deepfunneled "
            "(or name the archive's place with --mirror)."
        )
    url = f"{mirror.rstrip('/')}/{archive.name}" if mirror else MIRRORS[variant]
    download(url, archive, CHECKSUMS[variant], BLOCK_BYTES)
    return archive


def prepare(path: Path, target: Path) -> None:
    """Replace the folder `target` by the images found at `path`, once all of them are complete.

    Raises: CourseError if there are none, several folders of them, or one that is damaged or not of
        LFW.
    """
    people = set()
    n_images = 0
    bar = tqdm(desc=path.name, unit=" images", disable=None)
    with atomic_folder(target, ADVICE) as new, bar:
        for person, file, content in images_at(path):
            if person not in people:
                people.add(person)
                (new / person).mkdir()
            (new / person / file).write_bytes(content)
            n_images += 1
            bar.update()
        if not n_images:
            looked_for = "looked for PERSON/PERSON_0001.jpg and for archives"
            raise CourseError(f"found nothing of LFW in {path}; {looked_for}.")
    missing = f" (all of LFW are {N_IMAGES:,})" if n_images < N_IMAGES else ""
    print(f"{n_images:,} images of {len(people):,} people{missing} -> {target}")


def images_at(path: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield (person, file name, bytes) of each image found at `path`.

    Raises: CourseError if there are several folders of them, one image twice, one that is damaged,
        or more than LFW has.
    """
    roots = set()
    seen = set()
    for label, content in read_files(path, IMAGE, IMAGE_BYTES_MAX, "LFW"):
        match = IMAGE.fullmatch(label)
        check_image(f"{path}: {label}", content)
        roots.add(match["root"])
        if len(roots) > 1:
            sets = ", ".join(sorted(roots))
            raise CourseError(f"{path} holds several sets of faces ({sets}); name one of them.")
        file = f"{match['person']}_{match['number']}.jpg"
        if file in seen:
            raise CourseError(f"{path} holds {label} twice; get it again.")
        seen.add(file)
        if len(seen) > N_IMAGES:  # stop before another set fills the disk
            raise CourseError(
                f"{path} holds more than the {N_IMAGES:,} images of LFW; it is another set."
            )
        yield match["person"], file, content


def check_image(label: str, content: bytes) -> None:
    """Raise a CourseError with `label` unless `content` is a JPEG file of 250 x 250 pixels."""
    size = _size_of_jpeg(content)
    if size is None:
        raise CourseError(f"{label} is not a whole JPEG file; get it again.")
    if size != (SIZE, SIZE):
        raise CourseError(
            f"{label} has {size[0]} x {size[1]} pixels, but an image of LFW has {SIZE} x {SIZE}."
        )


def _size_of_jpeg(content):
    """(width, height) of the JPEG file with the bytes `content`; None if it is not whole."""
    begins = content.startswith(b"\xff\xd8")
    ends = content.endswith(b"\xff\xd9")
    if not begins or not ends or len(content) > IMAGE_BYTES_MAX:
        return None
    try:
        with Image.open(io.BytesIO(content), formats=["JPEG"]) as image:
            image.load()
            return image.size
    except (OSError, Image.DecompressionBombError):
        return None


if __name__ == "__main__":
    main(sys.argv[1:])

"""Download one published file: URL -> *verified file in a folder* -> a data script."""

import os
from functools import partial
from pathlib import Path

from tqdm import tqdm

from course.errors import CourseError


def download(url: str, path: Path, checksum: str, block: int) -> None:
    """Download `url` to the file `path`, unless `path` already exists with the right checksum.

    An interrupted download stays in PATH.part, and the next call continues it. Shows a bar.

    Args:
        checksum: as pooch writes it, "md5:..." or "sha256:...".
        block: bytes read at a time.

    Raises: CourseError if the server cannot be reached, or its file has another checksum than
        published.
    """
    import pooch  # only needed to download, and so is requests
    import requests

    part = path.with_name(f"{path.name}.part")
    pooch.get_logger().setLevel("WARNING")
    downloader = partial(_fetch, part, block)
    try:
        pooch.retrieve(url, checksum, path.name, path.parent, downloader=downloader)
    except requests.RequestException as error:  # is an OSError too
        if error.response is None:
            reason = type(error).__name__
        else:
            reason = f"HTTP status {error.response.status_code}"
        raise CourseError(
            f"could not download {url} ({reason}). Run the same command again, it resumes; "
            "or get the file in a browser and use --from."
        ) from None
    except ValueError:
        raise CourseError(
            f"{url} has another checksum than {path.name} as published; discarded. Run it again."
        ) from None
    except OSError as error:
        raise CourseError(
            f"could not store {path}: {error.strerror or type(error).__name__}. "
            "Make room or choose another folder with --data; the download resumes."
        ) from None


def _fetch(part, block, url, output_file, _):
    """Download `url` to `output_file`; continue `part` if it has the first bytes.

    It is a downloader for pooch.
    """
    import requests

    done = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    with requests.get(url, headers=headers, stream=True, timeout=30) as answer:
        all_is_here = answer.status_code == requests.codes.requested_range_not_satisfiable
        if not (done and all_is_here):
            answer.raise_for_status()
            if answer.status_code != requests.codes.partial_content:
                done = 0  # 200: from the start again
            _write(answer, part, done, block)
    os.replace(part, output_file)


def _write(answer, part, done, block):
    """Write what `answer` brings to the file `part`, after its first `done` bytes."""
    total = done + int(answer.headers.get("Content-Length", 0)) or None
    bar = tqdm(desc=part.stem, initial=done, total=total, unit="B", unit_scale=True, disable=None)
    with open(part, "ab" if done else "wb") as out, bar:
        for arrived in answer.iter_content(block):
            out.write(arrived)
            bar.update(len(arrived))

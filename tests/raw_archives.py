"""Archives as publishers give them, on disk and on a server, small ones of each data set; for tests of data scripts."""

import contextlib
import gzip
import hashlib
import http.server
import io
import struct
import tarfile
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import fashion as fashion_script  # data_scripts/
import lfw as lfw_script
import movielens as movielens_script
import numpy as np
import pytest
from PIL import Image

from course.datasets import fashion, lfw, movielens

PEOPLE = {"Avel_Borin": 2, "Cher": 1, "Dee-Ann_von_Eff": 3}  # the kinds of names that LFW has
# user, item, stars, seconds with the gaps in ids that raw files have; rows 1 and 2 share a second
ROWS = [(7, 50, 4, 300), (7, 20, 5, 100), (7, 90, 3, 100), (9, 20, 1, 50), (9, 50, 2, 40)]


@dataclass
class Raw:
    """A small set that counts as the published one, and its data script."""

    script: ModuleType
    module: ModuleType  # of course.datasets
    load: Callable  # of that module
    files: dict[str, bytes]  # as in an archive, below its root
    name: str  # of the set, as `load` takes it
    arguments: list[str]  # that the script always needs
    prepared: str  # one of the files that the script writes, in the data folder
    downloads: list[str]  # what --download keeps, in the data folder
    lines: dict[str, str]  # name -> what `load` prints of a stand-in
    licence: str  # in it
    nothing: str  # in the message for an archive of something else

    def run(self, *argv):
        self.script.main([*self.arguments, *map(str, argv)])

    def refused(self, capsys, *argv):
        """The one sentence with which the script ends, checked to come with exit code 1."""
        with pytest.raises(SystemExit) as stop:
            self.run(*argv)
        assert isinstance(stop.value.code, str) and stop.value.code.startswith("error: ")  # a str: exit code 1
        assert "\n" not in stop.value.code
        assert capsys.readouterr().err == ""
        return stop.value.code


def faces(monkeypatch):
    """LFW of six images."""
    monkeypatch.setattr(lfw, "STANDINS", {"tiny": (3, 6), "lfw": (2, 3)})
    files = {
        f"{person}/{person}_{number:04d}.jpg": jpeg((250, 250), seed=10 * i + number)
        for i, (person, count) in enumerate(PEOPLE.items())
        for number in range(1, count + 1)
    }
    tiny = "tiny: stand-in, 6 drawn faces of 3 people"
    line = "lfw: stand-in, 3 drawn faces of 2 people; real: make data"
    return Raw(lfw_script, lfw, lfw.folder, files, "lfw", [], "lfw/lfw/Cher/Cher_0001.jpg", ["lfw/lfw.tgz"],
               {"tiny": tiny, "lfw": line}, "TR 07-49", "found nothing of LFW")  # fmt: skip


def garments(monkeypatch):
    """Fashion-MNIST of 30 and 20 images."""
    monkeypatch.setattr(fashion, "SIZES", {"fashion": (30, 20)})
    monkeypatch.setattr(fashion_script, "SIZES", fashion.SIZES)
    monkeypatch.setattr(fashion, "STANDINS", {"tiny": (400, 10), "fashion": (20, 10)})
    files = {file: idx(values) for file, values in fashion.make_standin(30, 20, seed=5).items()}
    for file, content in files.items():
        monkeypatch.setitem(fashion_script.UNPACKED, file, hashlib.sha256(gzip.decompress(content)).hexdigest())
    tiny = "tiny: stand-in, 400 + 10 drawn garments"
    line = "fashion: stand-in, 20 + 10 drawn garments; real: make data DATA=fashion"
    downloads = [f"fashion/raw/{file}" for file in fashion.FILES]
    return Raw(fashion_script, fashion, fashion.load, files, "fashion", [], f"fashion/fashion/{fashion.FILES[0]}",
               downloads, {"tiny": tiny, "fashion": line}, "MIT", "found nothing of Fashion-MNIST")  # fmt: skip


def ratings(monkeypatch):
    """MovieLens sets of five ratings."""
    for name in movielens.SIZES:
        monkeypatch.setitem(movielens.SIZES, name, (2, 3, 5))
    monkeypatch.setitem(movielens.STANDINS, "ml-100k", (30, 100, 900))
    tiny = "tiny: stand-in, 300 users x 400 items, 20,000 rows"
    line = "ml-100k: stand-in, 30 users x 100 items, 900 rows; real: make data DATA=movielens NAMES=ml-100k"
    return Raw(movielens_script, movielens, movielens.load, {"u.data": text("ml-100k")}, "ml-100k", ["ml-100k"],
               "movielens/ml-100k.npz", ["movielens/ml-100k.zip"], {"tiny": tiny, "ml-100k": line},
               "Harper and Konstan", "holds no u.data")  # fmt: skip


def jpeg(size, seed=0):
    """Bytes of a JPEG file of random colours, some 10 kB."""
    colours = np.random.default_rng(seed).integers(0, 256, (50, 50, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(colours).resize(size).save(out, "JPEG")
    return out.getvalue()


def idx(values):
    """An .idx.gz file, written down from the description of the format and not by the package."""
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    return gzip.compress(header + bytes(values.ravel().tolist()), compresslevel=9, mtime=7)


def text(name, rows=ROWS):
    """The published file of MovieLens `name`, as bytes."""
    header = b"userId,movieId,rating,timestamp\r\n" if name == "ml-20m" else b""
    separator = {"ml-100k": "\t", "ml-1m": "::", "ml-20m": ","}[name]
    return header + "".join(separator.join(map(str, row)) + "\n" for row in rows).encode()


def pack(path, files, root=""):
    """`path`, now an archive of the kind its name says, or a folder: `files` below `root`, and a text file."""
    files = {"README.txt": b"made up", **files}
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as out:
            for name, content in files.items():
                out.writestr(root + name, content)
    elif path.suffix in (".tgz", ".gz", ".tar"):
        with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as out:
            for name, content in files.items():
                member = tarfile.TarInfo(root + name)
                member.size = len(content)
                out.addfile(member, io.BytesIO(content))
    else:
        for name, content in files.items():
            (path / root / name).parent.mkdir(parents=True, exist_ok=True)
            (path / root / name).write_bytes(content)
    return path


def stored(folder):
    """Relative path -> bytes of every file below `folder`, hidden ones too."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Archives(http.server.BaseHTTPRequestHandler):
    """Serves the file that the path names; notes what was asked; may know Range or not, and may break off."""

    def do_GET(self):
        server = self.server
        range_header = self.headers.get("Range")
        server.asked.append(range_header)
        body = server.files[self.path.rsplit("/", 1)[-1]]
        start = int(range_header[6:-1]) if range_header and server.ranges else 0
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start : server.breaks_at])

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(files):
    """A loopback server of `files` (name -> bytes) with its `url`."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Archives) as server:
        server.files, server.asked, server.ranges, server.breaks_at = files, [], True, None
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=partial(server.serve_forever, 0.01))
        thread.start()
        yield server
        server.shutdown()
        thread.join()

"""Fashion-MNIST from file to tensors: course.datasets.fashion and data_scripts/fashion.py, on drawn images only."""

import errno
import gzip
import hashlib
import http.server
import importlib.util
import os
import struct
import subprocess
import sys
import tarfile
import threading
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from raw_archives import Archives, pack, stored
from torch.nn import functional as F

from course.datasets import fashion
from course.errors import CourseError

_spec = importlib.util.spec_from_file_location(
    "fashion_script", Path(__file__).parents[1] / "data_scripts" / "fashion.py"
)
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)

FOLDER = ["fashion"]  # what is left in the data folder's fashion/ when the real set is prepared


@pytest.fixture(autouse=True)
def small_sets(monkeypatch, tmp_path):
    """Real sets and stand-ins are small, and the data folder is empty."""
    monkeypatch.setitem(fashion.SIZES, "fashion", (30, 20))
    monkeypatch.setitem(fashion.STANDINS, "fashion", (20, 10))
    monkeypatch.setitem(fashion.STANDINS, "tiny", (40, 10))
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "data"))


@pytest.fixture(scope="module")
def tiny():
    """The arrays of the stand-in "tiny" in its full size."""
    return fashion.make_standin(1000, 200)


@pytest.fixture
def files(monkeypatch):
    """Name -> bytes of the four files of a set that counts as the published one."""
    arrays = dict(zip(fashion.FILES, fashion.make_standin(30, 20, seed=5), strict=True))
    for file, values in arrays.items():
        monkeypatch.setitem(script.UNPACKED, file, hashlib.sha256(gzip.decompress(idx(values))).hexdigest())
    return {file: idx(values) for file, values in arrays.items()}


def idx(values):
    """An .idx.gz file, written down from the description of the format and not by the package."""
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    return gzip.compress(header + bytes(values.ravel().tolist()), compresslevel=9, mtime=7)


def unpacked(files):
    return {name.removesuffix(".gz"): gzip.decompress(content) for name, content in files.items()}


def refused(capsys, *argv):
    """The one sentence with which the script ends, checked to come with exit code 1."""
    with pytest.raises(SystemExit) as stop:
        script.main([str(arg) for arg in argv])
    assert isinstance(stop.value.code, str) and stop.value.code.startswith("error: ")  # a str: exit code 1
    assert "\n" not in stop.value.code
    assert capsys.readouterr().err == ""
    return stop.value.code


def left(tmp_path):
    """Names of everything in the data folder's fashion/."""
    folder = tmp_path / "data" / "fashion"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def tensors(data):
    return data.train_images, data.train_labels, data.test_images, data.test_labels


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(tensors(one), tensors(other), strict=True))


# ---- the stand-in


def test_stand_in_has_the_shape_of_the_real_set_and_its_brightness(tiny):
    for images, labels, n in (tiny[:2] + [1000], tiny[2:] + [200]):
        assert (images.shape, images.dtype, labels.shape, labels.dtype) == ((n, 28, 28), np.uint8, (n,), np.uint8)
        assert np.bincount(labels).tolist() == [n // 10] * 10
        assert len(np.unique(images.reshape(n, -1), axis=0)) == n, "no image is a copy"
        assert abs(images.mean() / 255 - fashion.MEAN) < 0.06 and abs(images.std() / 255 - fashion.DEVIATION) < 0.03
        assert (images == 0).mean() > 0.4, "the background is black"
        assert (np.diff(labels.astype(int)) != 0).mean() > 0.8, "classes come mixed"


def test_every_pixel_of_this_version_on_every_machine(tiny):
    digest = hashlib.sha256(b"".join(values.tobytes() for values in tiny)).hexdigest()
    assert digest == DIGEST, "the generator draws other images: change STANDIN_VERSION and write the new digest here"


DIGEST = "4bb9b6323299d6c46c99f79e6107d3f43408229bf8da4b243a9ec1db845948b3"  # of the four arrays of tiny


def test_another_seed_draws_other_things_and_test_images_are_not_training_images(tiny):
    other = fashion.make_standin(1000, 200, seed=1)
    images = [values.reshape(len(values), -1) for values in (tiny[0], tiny[2], other[0], other[2])]
    together = np.concatenate(images)
    assert len(np.unique(together, axis=0)) == len(together)


def share_right(features, labels, penalty):
    """Share of test images that a linear model names, in closed form: no step size and no number of epochs."""
    train, test = ((values - features[0].mean(0)).double() for values in features)
    gram = train @ train.T + penalty * torch.eye(len(train), dtype=torch.float64)
    scores = test @ (train.T @ torch.linalg.solve(gram, F.one_hot(labels[0]).double() - 0.1))
    return (scores.argmax(1) == labels[1]).double().mean().item()


def test_stand_in_needs_a_convolution_and_rewards_it(tiny):
    """Random edges, found anywhere in a quarter of a side, stand for a convolutional network."""
    images = [fashion.floats(torch.from_numpy(tiny[i])) for i in (0, 2)]
    labels = [torch.from_numpy(tiny[i]).long() for i in (1, 3)]
    kernels = torch.randn(100, 1, 5, 5, generator=torch.Generator().manual_seed(0))
    kernels -= kernels.mean((2, 3), keepdim=True)
    kernels /= kernels.norm(dim=(2, 3), keepdim=True)
    edges = [F.avg_pool2d(F.relu(F.conv2d(x, kernels, padding=2) - 0.5), 7).flatten(1) for x in images]
    by_pixels = max(share_right([x.flatten(1) for x in images], labels, penalty) for penalty in (100, 1000, 10_000))
    by_edges = share_right(edges, labels, 0.3)
    assert 0.65 < by_pixels < 0.8
    assert by_pixels + 0.05 < by_edges < 0.95


def test_stand_in_says_so_in_one_line_and_is_made_once(capsys, monkeypatch):
    for name, line in (
        ("tiny", "tiny: stand-in, 40 + 10 drawn garments"),
        ("fashion", "fashion: stand-in, 20 + 10 drawn garments; real: make data DATA=fashion"),
    ):
        with monkeypatch.context() as context:
            first = fashion.load(name)
            assert capsys.readouterr().out == line + "\n"
            context.setattr(fashion, "make_standin", None)  # calling it would fail
            again = fashion.load(name)
            assert capsys.readouterr().out == line + "\n"
            assert equal(first, again)
            assert (first.name, first.real, again.real) == (name, False, False)
            n_train, n_test = fashion.STANDINS[name]
            assert [values.shape for values in tensors(again)] == [
                (n_train, 28, 28),
                (n_train,),
                (n_test, 28, 28),
                (n_test,),
            ]
            assert [values.dtype for values in tensors(again)] == 2 * [torch.uint8, torch.int64]


def test_files_of_the_stand_in_are_written_the_same_at_any_time_in_the_format_of_the_real_ones(tmp_path):
    fashion.load("tiny")
    folder = tmp_path / "data" / "fashion" / "standin-tiny"
    arrays = fashion.make_standin(40, 10)
    assert sorted(stored(folder)) == sorted([*fashion.FILES, fashion.MARKER])
    for file, values in zip(fashion.FILES, arrays, strict=True):
        content = (folder / file).read_bytes()
        assert gzip.decompress(content) == gzip.decompress(idx(values))
        assert content[4:8] == bytes(4), "the time in the header of gzip"


@pytest.mark.parametrize(
    "damage", ["older", "no marker", "file missing", "truncated", "empty", "label 10", "other size"]
)
def test_damaged_or_outdated_stand_in_is_made_again(tmp_path, monkeypatch, damage):
    first = fashion.load("tiny")
    folder = tmp_path / "data" / "fashion" / "standin-tiny"
    whole = stored(folder)
    labels, images = folder / fashion.FILES[1], folder / fashion.FILES[0]
    if damage == "older":
        monkeypatch.setattr(fashion, "STANDIN_VERSION", "another")
        images.write_bytes(b"of an older version")
        whole[fashion.MARKER] = b"another"
    elif damage == "no marker":
        (folder / fashion.MARKER).unlink()
    elif damage == "file missing":
        images.unlink()
    elif damage in ("truncated", "empty"):
        images.write_bytes(whole[images.name][:-9] if damage == "truncated" else b"")
    else:
        labels.write_bytes(
            idx(np.full(40 if damage == "label 10" else 39, 10 if damage == "label 10" else 9, np.uint8))
        )
    assert equal(fashion.load("tiny"), first)
    assert stored(folder) == whole
    assert left(tmp_path) == ["standin-tiny"]


@pytest.mark.parametrize("stale", [False, True])
def test_of_two_processes_the_quicker_one_is_kept(tmp_path, monkeypatch, stale):
    marker = tmp_path / "data" / "fashion" / "standin-tiny" / fashion.MARKER
    if stale:
        fashion.load("tiny")
        marker.write_text("old")
    make, seen = fashion.make_standin, []

    def slower(*args):
        monkeypatch.setattr(fashion, "make_standin", make)
        fashion.load("tiny")  # the other process begins and ends meanwhile
        seen.append(marker.stat().st_ino)
        return make(*args)

    monkeypatch.setattr(fashion, "make_standin", slower)
    fashion.load("tiny")
    assert [marker.stat().st_ino] == seen
    assert left(tmp_path) == ["standin-tiny"]


ASK = """
import hashlib, sys
from course.datasets import fashion
sys.stdin.readline()  # all start at once
for folder in sys.argv[1:]:
    data = fashion.load("tiny", folder)
    values = data.train_images, data.train_labels, data.test_images, data.test_labels
    print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in values)).hexdigest())
"""


def test_ranks_that_ask_at_once_all_get_the_same_whole_set(tmp_path):
    """Where there is none yet, and where there is one of an older version."""
    new, stale = tmp_path / "new", tmp_path / "stale"
    pack(stale / "fashion" / "standin-tiny", {fashion.MARKER: b"old"}, root="")
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ranks = [subprocess.Popen([sys.executable, "-W", "error", "-c", ASK, new, stale], **pipes) for _ in range(3)]
    for rank in ranks:
        rank.stdin.write("\n")
        rank.stdin.flush()
    said = [rank.communicate(timeout=300) for rank in ranks]
    assert [(rank.returncode, err) for rank, (_, err) in zip(ranks, said, strict=True)] == [(0, "")] * 3
    assert {out for out, _ in said} == {2 * f"tiny: stand-in, 1,000 + 200 drawn garments\n{DIGEST_AS_LOADED}\n"}
    for folder in (new, stale):
        assert os.listdir(folder / "fashion") == ["standin-tiny"]
        assert len(stored(folder)) == 5


DIGEST_AS_LOADED = "a70d97bbfbc1e7f8691051735d4324ba6c43a1b0a87500cf1faecaa5b32b4496"  # labels are int64


def test_interrupted_stand_in_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fashion, "pack", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fashion.load("tiny")
    assert left(tmp_path) == []


def test_unknown_name_gets_the_near_miss():
    with pytest.raises(CourseError, match="no Fashion-MNIST set is called 'fasion'; did you mean fashion?"):
        fashion.load("fasion")


def test_floats_normalises_by_the_real_mean_and_deviation(device):
    images = torch.zeros(2, 28, 28, dtype=torch.uint8, device=device)
    images[1, 3, 4] = 255
    before = images.clone()
    x = fashion.floats(images)
    assert (x.shape, x.dtype, x.device) == ((2, 1, 28, 28), torch.float32, images.device)
    assert x[0].unique().tolist() == pytest.approx([-0.2860 / 0.3530])
    assert x[1, 0, 3, 4].item() == pytest.approx((1 - 0.2860) / 0.3530)
    assert (x != x[0, 0, 0, 0]).sum() == 1
    assert torch.equal(images, before)


# ---- raw -> prepared -> tensors


def check_prepared(files, tmp_path):
    target = tmp_path / "data" / "fashion" / "fashion"
    assert unpacked(stored(target)) == unpacked(files)
    data = fashion.load()
    assert data.real and data.name == "fashion"
    for values, expected in zip(tensors(data), fashion.make_standin(30, 20, seed=5), strict=True):
        assert np.array_equal(values.numpy(), expected)


@pytest.mark.parametrize("root", ["", "fashion-mnist/data/fashion/"])
@pytest.mark.parametrize("name", ["fashion.tgz", "fashion.tar.gz", "fashion.tar", "fashion.zip", "folder"])
@pytest.mark.parametrize("packed", [True, False])
def test_each_kind_of_archive_at_any_depth(tmp_path, files, capsys, name, root, packed):
    path = tmp_path / name
    raw = files if packed else unpacked(files)
    if name.endswith(".tar.gz"):
        pack(tmp_path / "fashion.tgz", raw, root).rename(path)
    else:
        pack(path, raw, root)
    script.main(["--from", str(path)])
    out = capsys.readouterr().out
    assert "MIT" in out and "Zalando" in out and "Xiao, Rasul and Vollgraf" in out
    assert out.endswith(f"30 training and 20 test images -> {tmp_path / 'data' / 'fashion' / 'fashion'}\n")
    check_prepared(files, tmp_path)
    assert capsys.readouterr().out == ""  # the line about a stand-in
    assert left(tmp_path) == FOLDER
    if packed:
        assert stored(tmp_path / "data" / "fashion" / "fashion") == files, "published files stay as they are"


def test_real_is_preferred_even_if_a_stand_in_is_there_and_tiny_stays_drawn(tmp_path, files):
    assert not fashion.load("fashion").real
    script.main(["--from", str(pack(tmp_path / "fashion.tgz", files))])
    assert fashion.load("fashion").real and not fashion.load("tiny").real


def test_folder_that_holds_one_archive_or_both_packed_and_unpacked_files(tmp_path, files, capsys):
    raw = tmp_path / "raw"
    raw.mkdir()
    pack(raw / "fashion.tgz", files)
    script.main(["--from", str(raw), "--data", str(tmp_path / "other")])
    assert stored(tmp_path / "other" / "fashion" / "fashion") == files
    pack(raw / "again.zip", files)
    assert "several archives (again.zip, fashion.tgz)" in refused(capsys, "--from", raw)
    both = pack(tmp_path / "FashionMNIST", {**unpacked(files), **files}, root="raw/")  # as torchvision leaves them
    script.main(["--from", str(both)])
    assert stored(tmp_path / "data" / "fashion" / "fashion") == files


# ---- bad input


@pytest.fixture
def prepared(tmp_path, files):
    """A prepared set, which has to outlive every failure."""
    folder = tmp_path / "data" / "fashion" / "fashion"
    pack(folder, files, root="")
    before = stored(folder)
    yield
    assert stored(folder) == before
    assert left(tmp_path) == FOLDER


def with_labels(files, labels):
    return {**files, fashion.FILES[1]: idx(np.array(labels, np.uint8))}


def broken(kind, files):
    """`files` with one of them broken, and what has to be said about it."""
    images, labels = fashion.FILES[:2]
    content = gzip.decompress(files[images])
    if kind == "label 10":
        return with_labels(files, [*range(10), 10, *range(9), *range(10)]), "the label 10 in row 11, but 0 to 9 exist"
    if kind == "too few":
        return with_labels(files, range(10)), "announces 10 values, expected 30; get it again"
    if kind == "swapped":
        return {**files, images: files[labels]}, "begins with 00000801, an IDX file of this kind with 00000803"
    if kind == "other size":
        return {**files, images: idx(np.zeros((30, 32, 28), np.uint8))}, "announces 30 x 32 x 28 values"
    if kind == "short":
        return {**files, images: gzip.compress(content[:-1])}, "ends after 23,519 of 23,520 values"
    if kind == "long":
        return {**files, images: gzip.compress(content + b"\0")}, "goes on after 23,520 values"
    if kind == "empty inside":
        return {**files, images: gzip.compress(b"")}, "begins with nothing"
    if kind == "page":
        return {**files, images: gzip.compress(b"<html>not found</html>")}, "begins with 3c68746d"
    whole = files[images]
    if kind == "truncated":
        return {**files, images: whole[: len(whole) // 2]}, "Compressed file ended before the end-of-stream marker"
    if kind == "checksum":
        return {**files, images: whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:]}, "CRC check failed"
    if kind == "not packed":
        return {**files, images: content}, "Not a gzipped file"
    assert kind == "missing"
    return {name: content for name, content in files.items() if name != images}, images


BROKEN = ["label 10", "too few", "swapped", "other size", "short", "long", "empty inside", "page", "truncated",
          "checksum", "not packed", "missing"]  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_prepared_file_is_named_with_the_remedy(tmp_path, files, kind):
    content, message = broken(kind, files)
    pack(tmp_path / "data" / "fashion" / "fashion", content, root="")
    with pytest.raises(CourseError, match="python data_scripts/fashion.py --download") as caught:
        fashion.load()
    said = str(caught.value)
    assert message.removesuffix("; get it again") in said and "-ubyte.gz should be a file of Fashion-MNIST" in said
    assert "get it again" not in said and "\n" not in said and len(said) < 420


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_raw_file_is_named(tmp_path, files, prepared, capsys, kind):
    content, message = broken(kind, files)
    path = pack(tmp_path / "bad.zip", content)
    assert message in refused(capsys, "--from", path)


def test_set_that_has_the_names_and_sizes_but_is_not_fashion(tmp_path, files, prepared, capsys):
    digits = dict(zip(fashion.FILES, map(idx, fashion.make_standin(30, 20, seed=6)), strict=True))
    message = refused(capsys, "--from", pack(tmp_path / "mnist", digits))
    assert "lfw/train-images-idx3-ubyte.gz has the shape of Fashion-MNIST but other content than published" in message


@pytest.mark.parametrize("kind", [".tgz", ".zip"])
def test_names_that_lead_out_of_the_archive_and_links(tmp_path, files, prepared, capsys, kind):
    name = f"../{fashion.FILES[0]}"
    path = pack(tmp_path / f"bad{kind}", {name: b"must not be unpacked"}, root="")
    assert f"{path} holds {name}, a link or a way out of its folder; it is not an archive of Fashion" in refused(
        capsys, "--from", path
    )
    if kind == ".zip":
        member = zipfile.ZipInfo(fashion.FILES[0])
        member.external_attr = 0o120777 << 16
        with zipfile.ZipFile(path, "w") as out:
            out.writestr(member, "/etc/hostname")
    else:
        member = tarfile.TarInfo(fashion.FILES[0])
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/hostname"
        with tarfile.open(path, "w:gz") as out:
            out.addfile(member)
    assert f"holds {fashion.FILES[0]}, a link" in refused(capsys, "--from", path)


@pytest.mark.parametrize("kind", [".tgz", ".tar", ".zip"])
def test_truncated_archive(tmp_path, files, prepared, capsys, kind):
    path = pack(tmp_path / f"cut{kind}", files)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert "is not a whole .tgz, .tar or .zip archive" in refused(capsys, "--from", path)


def test_more_than_one_set(tmp_path, files, prepared, capsys):
    both = {f"{root}/{name}": content for root in ("a", "b") for name, content in files.items()}
    assert "several sets (a/, b/); name one of them" in refused(capsys, "--from", pack(tmp_path / "two", both, root=""))
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(tmp_path / "twice.zip", "w") as out:
        for _ in range(2):
            out.writestr(fashion.FILES[0], files[fashion.FILES[0]])
    assert f"holds {fashion.FILES[0]} twice" in refused(capsys, "--from", tmp_path / "twice.zip")


def test_file_that_unpacks_to_more_than_there_can_be(tmp_path, files, prepared, capsys, monkeypatch):
    monkeypatch.setattr(script, "LARGEST", 30_000)
    bomb = gzip.compress(gzip.decompress(files[fashion.FILES[0]]) + bytes(1 << 20))
    path = pack(tmp_path / "bomb.tar", {**files, fashion.FILES[0]: bomb})
    assert "goes on after" in refused(capsys, "--from", path)


def test_wrong_arguments(tmp_path, capsys):
    assert "no such file" in refused(capsys, "--from", tmp_path / "nowhere")
    assert "found nothing of Fashion-MNIST" in refused(capsys, "--from", tmp_path)
    assert "belongs to --download" in refused(capsys, "--from", tmp_path, "--mirror", "http://127.0.0.1:9")
    assert left(tmp_path) == []


# ---- disks


def test_no_write_permission(unprivileged):
    with pytest.raises(CourseError, match="could not write .*: Permission denied"):
        fashion.load("tiny", unprivileged)
    assert list(unprivileged.iterdir()) == []


def test_full_disk(full_disk, tmp_path, files, capsys):
    fashion.STANDINS["tiny"] = (400, 10)
    with pytest.raises(CourseError, match=f"standin-tiny: {os.strerror(errno.ENOSPC)}. Make room"):
        fashion.load("tiny", full_disk)
    assert not [path for path in full_disk.rglob("*") if path.is_file()]


def test_disk_that_fills_up_while_writing_keeps_the_old_set(tmp_path, files, prepared, capsys, monkeypatch):
    write = Path.write_bytes

    def full(path, content):
        if path.name == fashion.FILES[2]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, content)

    path = pack(tmp_path / "fashion.tgz", files)
    monkeypatch.setattr(Path, "write_bytes", full)
    message = refused(capsys, "--from", path)
    assert os.strerror(errno.ENOSPC) in message and "what was there is unchanged" in message


# ---- download


class Files(Archives):
    """Serves the file that the path names."""

    def do_GET(self):
        self.server.body = self.server.files[self.path.rsplit("/", 1)[-1]]
        super().do_GET()


@pytest.fixture
def server(tmp_path, monkeypatch, files):
    """A loopback server that holds the four files, whose checksums count as the published ones."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(script, "BLOCK", 100)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        server.files, server.asked, server.ranges, server.breaks_at = files, [], True, None
        server.url = f"http://127.0.0.1:{server.server_port}"
        for file, content in files.items():
            monkeypatch.setitem(script.MD5, file, hashlib.md5(content).hexdigest())
        thread = threading.Thread(target=partial(server.serve_forever, 0.01))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_download_prepares_and_is_not_repeated(tmp_path, server, files, capsys):
    for _ in range(2):
        script.main(["--download", "--mirror", f"{server.url}/some/where/"])
    assert capsys.readouterr().out.count("Zalando") == 2
    check_prepared(files, tmp_path)
    assert server.asked == [None] * 4
    assert left(tmp_path) == ["fashion", "raw"]
    assert stored(tmp_path / "data" / "fashion" / "raw") == files


@pytest.mark.parametrize("ranges", [True, False])
def test_download_that_broke_off_goes_on(tmp_path, server, files, capsys, ranges):
    server.ranges, server.breaks_at = ranges, 1000
    assert "Run the same command again" in refused(capsys, "--download", "--mirror", server.url)
    assert list(stored(tmp_path / "data")) == [f"fashion/raw/{fashion.FILES[0]}.part"]
    server.breaks_at = None
    script.main(["--download", "--mirror", server.url])
    assert server.asked == [None, "bytes=1000-", None, None, None]
    check_prepared(files, tmp_path)


def test_download_with_another_checksum_is_discarded(tmp_path, server, capsys, monkeypatch):
    monkeypatch.setitem(script.MD5, fashion.FILES[0], "0" * 32)
    assert f"another checksum than {fashion.FILES[0]}" in refused(capsys, "--download", "--mirror", server.url)
    assert stored(tmp_path / "data") == {}


def test_script_knows_every_file_by_both_checksums():
    assert list(script.MD5) == list(script.UNPACKED) == list(fashion.FILES)
    assert {len(digest) for digest in script.MD5.values()} == {32}
    assert {len(digest) for digest in script.UNPACKED.values()} == {64}


def test_validation_images_are_training_images_and_no_others():
    data = fashion.load("tiny")
    n = len(data.train_labels)
    images, labels, validation_images, validation_labels = fashion.with_validation(data, share=0.25, seed=3)
    assert len(validation_labels) == round(n / 4) and len(labels) == n - round(n / 4)
    both, own = torch.cat([images, validation_images]), fashion.floats(data.train_images)
    assert sorted(image.numpy().tobytes() for image in both) == sorted(image.numpy().tobytes() for image in own)
    assert torch.equal(fashion.with_validation(data, share=0.25, seed=3)[1], labels)
    with pytest.raises(CourseError, match=r"share is 1\.5; it must lie between 0 and 1"):
        fashion.with_validation(data, share=1.5)

"""LFW from archive to folder: course.datasets.lfw and data_scripts/lfw.py, on drawn faces only."""

import errno
import hashlib
import http.server
import importlib.util
import io
import os
import re
import tarfile
import threading
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from raw_archives import Archives, pack, stored

from course.datasets import lfw
from course.errors import CourseError
from course.loading.loaders import image_paths
from course.system.files import atomic_folder

_spec = importlib.util.spec_from_file_location("lfw_script", Path(__file__).parents[1] / "data_scripts" / "lfw.py")
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)

PEOPLE = {"Avel_Borin": 2, "Cher": 1, "Dee-Ann_von_Eff": 3}  # the kinds of names that LFW has


@pytest.fixture(autouse=True)
def small_sets(monkeypatch, tmp_path):
    """Stand-ins are small, and the data folder is empty."""
    monkeypatch.setitem(lfw.STANDINS, "tiny", (3, 5))
    monkeypatch.setitem(lfw.STANDINS, "lfw", (2, 3))
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "data"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The folder of the stand-in "tiny" in its full size."""
    root = tmp_path_factory.mktemp("tiny")
    lfw.make_standin(root, 40, 240, progress=False)
    return root


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    """Name (PERSON/PERSON_NNNN.jpg) -> bytes of an image, drawn, for each image of PEOPLE."""
    root = tmp_path_factory.mktemp("faces")
    lfw.make_standin(root, 2, 6, seed=5, progress=False)
    drawn = iter(sorted(root.glob("*/*.jpg")))
    return {
        f"{person}/{person}_{number:04d}.jpg": next(drawn).read_bytes()
        for person, count in PEOPLE.items()
        for number in range(1, count + 1)
    }


def refused(capsys, *argv):
    """The one sentence with which the script ends, checked to come with exit code 1."""
    with pytest.raises(SystemExit) as stop:
        script.main([str(arg) for arg in argv])
    assert isinstance(stop.value.code, str) and stop.value.code.startswith("error: ")  # a str: exit code 1
    assert "\n" not in stop.value.code
    assert capsys.readouterr().err == ""
    return stop.value.code


def left(tmp_path):
    """Names of everything in the data folder's lfw/."""
    folder = tmp_path / "data" / "lfw"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


# ---- the stand-in


def test_stand_in_has_the_layout_size_and_file_size_of_lfw(tiny):
    images = sorted(tiny.glob("*/*"))
    assert len(images) == 240 and all(path.is_dir() for path in tiny.iterdir())
    counts = []
    for person in tiny.iterdir():
        assert re.fullmatch("[A-Z][a-z]+_[A-Z][a-z]+", person.name)
        names = sorted(path.name for path in person.iterdir())
        assert names == [f"{person.name}_{number:04d}.jpg" for number in range(1, len(names) + 1)]
        counts.append(len(names))
    assert len(counts) == 40 and min(counts) == 1 and max(counts) > 4 * np.median(counts)
    for path in images[::10]:
        with Image.open(path) as image:
            image.load()
            assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (250, 250))
    sizes = np.array([path.stat().st_size for path in images])
    assert 12_000 < sizes.mean() < 14_500 and sizes.min() > 8000 and sizes.max() < 20_000


def test_a_face_is_nearer_to_its_person_than_to_others(tiny):
    """In the middle of the picture, which the background does not reach."""
    people = sorted(person for person in tiny.iterdir() if len(list(person.iterdir())) >= 4)[:12]
    middles = np.stack(
        [
            [np.asarray(Image.open(path).crop((75, 60, 175, 190)).resize((20, 26)), float) for path in images]
            for images in (sorted(person.iterdir())[:4] for person in people)
        ]
    ).reshape(len(people), 4, -1)
    assert len(people) == 12
    within = np.linalg.norm(middles[:, :2].mean(1) - middles[:, 2:].mean(1), axis=1)
    between = np.linalg.norm(middles[:, None, :2].mean(2) - middles[None, :, 2:].mean(2), axis=2)
    assert within.mean() < 0.75 * between[~np.eye(12, dtype=bool)].mean()
    assert min(np.abs(middles[:, 0] - middles[:, 1]).mean(1)) > 3  # no image is a copy


def test_same_seed_same_pixels_another_seed_other_people(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        lfw.make_standin(tmp_path / name, 3, 5, seed=seed, progress=False)
    first = stored(tmp_path / "a")
    assert len(first) == 5 and first == stored(tmp_path / "b")
    other = stored(tmp_path / "c")
    assert not set(first) & set(other) and not set(first.values()) & set(other.values())


def test_pixels_of_this_version():
    """Before compression; means, because libraries round a little differently."""
    person = lfw._random_person(np.random.Generator(np.random.PCG64(1)))
    image = np.asarray(lfw._picture(person, np.random.Generator(np.random.PCG64(2))), float)
    blocks = image.reshape(5, 50, 5, 50, 3).mean((1, 3, 4))
    message = "the generator draws other images: change STANDIN_VERSION and write the new numbers here"
    assert np.allclose(blocks[:, 2], MIDDLE, atol=0.5), message


MIDDLE = [178.3, 121.6, 181.1, 164.8, 189.3]  # mean brightness down the middle of a face


def test_stand_in_says_so_in_one_line_and_is_made_once(capsys, monkeypatch):
    for name, line in (
        ("tiny", "tiny: stand-in, 5 drawn faces of 3 people"),
        ("lfw", "lfw: stand-in, 3 drawn faces of 2 people; real: make data"),
    ):
        with monkeypatch.context() as context:
            root = lfw.folder(name)
            assert capsys.readouterr().out.split("\n")[0] == line
            before = {path: path.stat().st_mtime_ns for path in root.glob("*/*.jpg")}
            context.setattr(lfw, "make_standin", None)  # calling it would fail
            assert lfw.folder(name) == root
            assert capsys.readouterr().out == line + "\n"
            assert len(before) == lfw.STANDINS[name][1]
            assert before == {path: path.stat().st_mtime_ns for path in root.glob("*/*.jpg")}


@pytest.mark.parametrize("damage", ["older", "no marker", "image missing"])
def test_damaged_or_outdated_stand_in_is_made_again(tmp_path, monkeypatch, damage):
    root = lfw.folder("tiny")
    whole = stored(root)
    image = next(root.glob("*/*.jpg"))
    if damage == "older":
        monkeypatch.setattr(lfw, "STANDIN_VERSION", "another")
        image.write_bytes(b"of an older version")
    elif damage == "no marker":
        (root.parent / lfw.MARKER).unlink()
        image.write_bytes(b"half made")
    else:
        image.unlink()
    assert lfw.folder("tiny") == root
    assert stored(root) == whole
    assert (root.parent / lfw.MARKER).read_text() == lfw.STANDIN_VERSION
    assert left(tmp_path) == ["standin-tiny"]


@pytest.mark.parametrize("stale", [False, True])
def test_of_two_processes_the_quicker_one_is_kept(tmp_path, monkeypatch, stale):
    if stale:
        lfw.folder("tiny")
        (tmp_path / "data" / "lfw" / "standin-tiny" / lfw.MARKER).write_text("old")
    make, seen = lfw.make_standin, []

    def slower(*args):
        monkeypatch.setattr(lfw, "make_standin", make)
        seen.append(next(lfw.folder("tiny").glob("*/*.jpg")))  # the other process begins and ends meanwhile
        seen.append(seen[0].stat().st_ino)
        make(*args)

    monkeypatch.setattr(lfw, "make_standin", slower)
    lfw.folder("tiny")
    assert seen[0].stat().st_ino == seen[1]
    assert left(tmp_path) == ["standin-tiny"]


def test_interrupted_stand_in_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(root, *_):
        (root / "Half_Made").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(lfw, "make_standin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lfw.folder("tiny")
    assert left(tmp_path) == []


def test_unknown_name_gets_the_near_miss():
    with pytest.raises(CourseError, match="no LFW set is called 'lwf'; did you mean lfw?"):
        lfw.folder("lwf")


# ---- a folder whole or not at all


def test_whole_folder_replaces_only_when_complete(tmp_path):
    path = tmp_path / "above" / "folder"
    for content in ("first", "second"):
        with atomic_folder(path) as new:
            (new / "file").write_text(content)
    with pytest.raises(ZeroDivisionError), atomic_folder(path) as new:
        (new / "file").write_text("third")
        raise ZeroDivisionError
    assert (path / "file").read_text() == "second"
    assert os.listdir(path.parent) == ["folder"]


def test_whole_folder_puts_the_old_one_back_if_the_last_step_fails(tmp_path, monkeypatch):
    path, rename, done = tmp_path / "folder", os.rename, []

    def third_time_unlucky(source, target):
        done.append(source)
        if len(done) == 3:  # new over old, old away, *new in its place*
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    pack(path, {"file": b"old"}, root="")
    monkeypatch.setattr(os, "rename", third_time_unlucky)
    with pytest.raises(CourseError, match=os.strerror(errno.EIO)), atomic_folder(path) as new:
        (new / "file").write_text("new")
    assert (path / "file").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["folder"]


# ---- raw -> prepared


@pytest.mark.parametrize("root", ["", "lfw/", "a/b/lfw-deepfunneled/"])
@pytest.mark.parametrize("name", ["lfw.tgz", "lfw.tar", "lfw.zip", "unpacked"])
def test_each_kind_of_archive_at_any_depth(tmp_path, faces, capsys, name, root):
    script.main(["--from", str(pack(tmp_path / name, faces, root))])
    target = tmp_path / "data" / "lfw" / "lfw"
    out = capsys.readouterr().out
    assert "TR 07-49" in out and out.endswith(f"6 images of 3 people (all of LFW are 13,233) -> {target}\n")
    assert stored(target) == faces
    assert left(tmp_path) == ["lfw"]
    assert lfw.folder() == target
    assert capsys.readouterr().out == ""  # the line about a stand-in


def test_real_is_preferred_even_if_a_stand_in_is_there_and_tiny_stays_drawn(tmp_path, faces):
    assert lfw.folder("lfw").parent.name == "standin-lfw"
    script.main(["--from", str(pack(tmp_path / "lfw.tgz", faces))])
    assert lfw.folder("lfw") == tmp_path / "data" / "lfw" / "lfw"
    assert lfw.folder("tiny").parent.name == "standin-tiny"


def test_folder_that_holds_one_archive_and_lists(tmp_path, faces, capsys):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "pairs.txt").write_text("10\t300\n")
    pack(raw / "lfw.tgz", faces)
    script.main(["--from", str(raw), "--data", str(tmp_path / "other")])
    assert stored(tmp_path / "other" / "lfw" / "lfw") == faces
    pack(raw / "lfw-funneled.zip", faces)
    assert "several archives (lfw-funneled.zip, lfw.tgz)" in refused(capsys, "--from", raw)


def test_only_files_named_as_images_are_taken(tmp_path, faces):
    other = {
        "pairs.txt": b"10 300",
        "Avel_Borin/notes.txt": b"",
        "Avel_Borin/Avel_Borin_1.jpg": b"",
        "Avel_Borin/._Avel_Borin_0001.jpg": b"as a Mac packs it",
        "Avel_Borin/Cher_0001.jpg": b"",
        "../../escaped.txt": b"must not be unpacked",
    }
    script.main(["--from", str(pack(tmp_path / "lfw.tgz", {**other, **faces}))])
    assert stored(tmp_path / "data" / "lfw" / "lfw") == faces
    assert not list(tmp_path.parent.rglob("escaped.txt"))


def test_new_set_replaces_all_of_the_old(tmp_path, faces):
    script.main(["--from", str(pack(tmp_path / "lfw.tgz", faces))])
    one = {"Cher/Cher_0001.jpg": faces["Cher/Cher_0001.jpg"]}
    script.main(["--from", str(pack(tmp_path / "one.zip", one))])
    assert stored(tmp_path / "data" / "lfw") == {"lfw/Cher/Cher_0001.jpg": one["Cher/Cher_0001.jpg"]}


# ---- bad input


@pytest.fixture
def prepared(tmp_path, faces):
    """What a prepared set of one image looks like, which has to outlive every failure."""
    folder = tmp_path / "data" / "lfw"
    pack(folder, {"Cher/Cher_0001.jpg": faces["Cher/Cher_0001.jpg"]})
    before = stored(folder)
    yield
    assert stored(folder) == before
    assert left(tmp_path) == ["lfw"]


@pytest.mark.parametrize("name", ["/Zed_Ox/Zed_Ox_0001.jpg", "../Zed_Ox/Zed_Ox_0001.jpg", "lfw/../Zed/Zed_0001.jpg"])
@pytest.mark.parametrize("kind", [".tgz", ".zip"])
def test_names_that_lead_out_of_the_archive(tmp_path, faces, prepared, capsys, kind, name):
    path = pack(tmp_path / f"bad{kind}", {name: faces["Cher/Cher_0001.jpg"]}, root="")
    assert f"{path} holds {name}, a link or a way out" in refused(capsys, "--from", path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, "zip", "folder"])
def test_links_and_devices(tmp_path, prepared, capsys, kind):
    secret, name = tmp_path / "secret.jpg", "lfw/Cher/Cher_0002.jpg"
    secret.write_bytes(b"\xff\xd8 must not be read \xff\xd9")
    path = tmp_path / "bad"
    if kind == "zip":
        member = zipfile.ZipInfo(name)
        member.external_attr = 0o120777 << 16
        with zipfile.ZipFile(path, "w") as out:
            out.writestr(member, str(secret))
    elif kind == "folder":
        (path / "Cher").mkdir(parents=True)
        (path / "Cher" / "Cher_0002.jpg").symlink_to(secret)
    else:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, str(secret)
        with tarfile.open(path, "w") as out:
            out.addfile(member)
    message = refused(capsys, "--from", path)
    assert ("found nothing of LFW" if kind == "folder" else f"holds {name}, a link") in message


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("kind", [".tgz", ".tar", ".zip"])
def test_truncated_archive(tmp_path, faces, prepared, capsys, kind, keep):
    path = pack(tmp_path / f"cut{kind}", faces)
    path.write_bytes(path.read_bytes()[: round(keep * path.stat().st_size)])
    assert "is not a whole .tgz, .tar or .zip archive" in refused(capsys, "--from", path)


def test_archive_cut_between_two_images(tmp_path, faces, prepared, capsys):
    """Nothing but the missing end tells."""
    path = pack(tmp_path / "cut.tar", faces)
    with tarfile.open(path) as archive:
        last = archive.getmembers()[-1].offset
    path.write_bytes(path.read_bytes()[:last])
    assert "is not a whole .tgz, .tar or .zip archive (it ends early)" in refused(capsys, "--from", path)


@pytest.mark.parametrize("kind", [".tgz", ".zip"])
def test_damaged_or_foreign_archive(tmp_path, faces, prepared, capsys, kind):
    path = pack(tmp_path / f"bad{kind}", faces)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255  # shows in the checksum, or else in the image
    path.write_bytes(content)
    assert "is not a whole" in refused(capsys, "--from", path)
    path.write_bytes(b"<html>not found</html>" * 100)
    assert "is not a whole" in refused(capsys, "--from", path)
    assert "found nothing of LFW" in refused(capsys, "--from", pack(path, {"a.jpg": b"\xff\xd8\xff\xd9"}))


def jpeg(size):
    out = io.BytesIO()
    Image.new("RGB", size).save(out, "JPEG")
    return out.getvalue()


@pytest.mark.parametrize("bad", ["truncated", "empty", "text", "png", "no header", "large"])
@pytest.mark.parametrize("kind", ["lfw.tgz", "unpacked"])
def test_image_that_is_not_a_whole_jpeg_is_named(tmp_path, faces, prepared, capsys, monkeypatch, kind, bad):
    whole = faces["Cher/Cher_0001.jpg"]
    if bad == "large":
        monkeypatch.setattr(script, "LARGEST", 20_000)
    content = {
        "truncated": whole[:-700],
        "empty": b"",
        "text": b"<html>not found</html>",
        "png": b"\x89PNG\r\n\x1a\n",
        "no header": b"\xff\xd8 nothing \xff\xd9",
        "large": whole[:-2] + bytes(20_000) + b"\xff\xd9",
    }[bad]
    path = pack(tmp_path / kind, {**faces, "Dee-Ann_von_Eff/Dee-Ann_von_Eff_0002.jpg": content})
    message = refused(capsys, "--from", path)
    assert f"{path}: lfw/Dee-Ann_von_Eff/Dee-Ann_von_Eff_0002.jpg is not a whole JPEG file" in message


@pytest.mark.parametrize("size", [(64, 64), (250, 251)])
def test_image_of_another_size_is_named(tmp_path, prepared, capsys, size):
    path = pack(tmp_path / "small.zip", {"Cher/Cher_0001.jpg": jpeg(size)})
    message = refused(capsys, "--from", path)
    assert f"lfw/Cher/Cher_0001.jpg has {size[0]} x {size[1]} pixels, but an image of LFW has 250 x 250" in message


def test_more_than_one_set(tmp_path, faces, prepared, capsys, monkeypatch):
    both = {f"{root}/{name}": content for root in ("lfw", "lfw_funneled") for name, content in faces.items()}
    message = refused(capsys, "--from", pack(tmp_path / "both", both, root=""))
    assert "several sets of faces (lfw/, lfw_funneled/); name one of them" in message
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(tmp_path / "twice.zip", "w") as out:
        for _ in range(2):
            out.writestr("Cher/Cher_0001.jpg", faces["Cher/Cher_0001.jpg"])
    assert "holds Cher/Cher_0001.jpg twice" in refused(capsys, "--from", tmp_path / "twice.zip")
    monkeypatch.setattr(script, "N_IMAGES", 5)
    assert "more than the 5 images of LFW" in refused(capsys, "--from", pack(tmp_path / "lfw.tgz", faces))


def test_wrong_arguments(tmp_path, capsys):
    assert "no such file" in refused(capsys, "--from", tmp_path / "nowhere")
    assert "found nothing of LFW" in refused(capsys, "--from", tmp_path)
    assert "belong to --download" in refused(capsys, "--from", tmp_path, "--variant", "original")
    assert "no mirror of lfw-deepfunneled.tgz is known" in refused(capsys, "--download", "--variant", "deepfunneled")
    assert left(tmp_path) == []


# ---- disks


def test_no_write_permission(unprivileged):
    with pytest.raises(CourseError, match="could not write .*: Permission denied"):
        lfw.folder("tiny", unprivileged)
    assert list(unprivileged.iterdir()) == []


def test_full_disk(full_disk, tmp_path, faces, capsys):
    lfw.STANDINS["tiny"] = (3, 9)
    with pytest.raises(CourseError, match=f"standin-tiny: {os.strerror(errno.ENOSPC)}. Make room"):
        lfw.folder("tiny", full_disk)
    path = pack(tmp_path / "lfw.tgz", faces)
    assert os.strerror(errno.ENOSPC) in refused(capsys, "--from", path, "--data", full_disk)
    assert not [path for path in full_disk.rglob("*") if path.is_file()]


def test_disk_that_fills_up_while_unpacking_keeps_the_old_set(tmp_path, faces, prepared, capsys, monkeypatch):
    write = Path.write_bytes

    def full(path, content):
        if path.name == "Dee-Ann_von_Eff_0002.jpg":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, content)

    path = pack(tmp_path / "lfw.tgz", faces)
    monkeypatch.setattr(Path, "write_bytes", full)
    message = refused(capsys, "--from", path)
    assert os.strerror(errno.ENOSPC) in message and "what was there is unchanged" in message


def test_ctrl_c_keeps_the_old_set(tmp_path, faces, prepared, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    path = pack(tmp_path / "lfw.tgz", faces)
    monkeypatch.setattr(script, "check_image", interrupted)
    with pytest.raises(SystemExit, match="130"):
        script.main(["--from", str(path)])


# ---- download


@pytest.fixture
def server(tmp_path, monkeypatch, faces):
    """A loopback server that answers every path with one archive, whose checksum counts as the published one."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(script, "BLOCK", 1000)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Archives) as server:
        server.body = pack(tmp_path / "served.tgz", faces).read_bytes()
        server.asked, server.ranges, server.breaks_at = [], True, None
        server.url = f"http://127.0.0.1:{server.server_port}"
        for variant in script.ARCHIVES:
            monkeypatch.setitem(script.CHECKSUMS, variant, f"sha256:{hashlib.sha256(server.body).hexdigest()}")
        thread = threading.Thread(target=partial(server.serve_forever, 0.01))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("variant", [None, "original", "funneled", "deepfunneled"])
def test_download_prepares_and_is_not_repeated(tmp_path, server, faces, capsys, variant):
    chosen = ["--variant", variant] if variant else []
    for _ in range(2):
        script.main(["--download", *chosen, "--mirror", server.url])
    assert capsys.readouterr().out.count("TR 07-49") == 2
    assert stored(tmp_path / "data" / "lfw" / "lfw") == faces
    assert server.asked == [None]
    assert left(tmp_path) == sorted(["lfw", script.ARCHIVES[variant or "original"]])


def test_download_knows_where_scikit_learn_finds_the_archive(tmp_path, server, faces, monkeypatch):
    monkeypatch.setitem(script.MIRRORS, "funneled", f"{server.url}/files/5976015")
    script.main(["--download", "--variant", "funneled"])
    assert stored(tmp_path / "data" / "lfw" / "lfw") == faces


@pytest.mark.parametrize("ranges", [True, False])
def test_download_that_broke_off_goes_on(tmp_path, server, faces, capsys, ranges):
    server.ranges, server.breaks_at = ranges, 5000
    assert "Run the same command again" in refused(capsys, "--download", "--mirror", server.url)
    assert left(tmp_path) == ["lfw.tgz.part"]
    server.breaks_at = None
    script.main(["--download", "--mirror", server.url])
    assert server.asked == [None, "bytes=5000-"]
    assert left(tmp_path) == ["lfw", "lfw.tgz"]
    assert stored(tmp_path / "data" / "lfw" / "lfw") == faces


def test_download_with_another_checksum_is_discarded(tmp_path, server, capsys, monkeypatch):
    monkeypatch.setitem(script.CHECKSUMS, "original", "sha256:" + "0" * 64)
    assert "another checksum than lfw.tgz" in refused(capsys, "--download", "--mirror", server.url)
    assert left(tmp_path) == []


def test_image_paths_are_sorted_images_of_people_and_nothing_else(tmp_path):
    names = ["Bo/02.jpg", "Ada/1.jpg", "Bo/01.jpg"]
    others = ["Bo/a.png", "Bo/jpg", "Bo/02.jpeg", "00.jpg", "Bo/more/0.jpg", ".cache/0.jpg", "Bo/._01.jpg"]
    for name in names + others:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert image_paths(str(tmp_path)) == [tmp_path / name for name in sorted(names)]


@pytest.mark.parametrize("folder", [".", "missing"])
def test_a_folder_without_images_is_named(tmp_path, folder):
    with pytest.raises(FileNotFoundError, match=r"<name>\.jpg"):
        image_paths(tmp_path / folder)

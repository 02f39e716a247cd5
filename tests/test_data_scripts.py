"""From archive to data folder, and stand-ins: what holds for each data set, whatever goes wrong."""

import contextlib
import errno
import hashlib
import os
import resource
import tarfile
import zipfile
from itertools import product

import pooch  # noqa: F401  imported while this process may still read its files
import pytest
import requests  # noqa: F401
from raw_archives import faces, garments, pack, ratings, serving, stored

from course.errors import CourseError

MAKERS = {"lfw": faces, "fashion": garments, "movielens": ratings}
each_set = pytest.mark.parametrize("raw", MAKERS, indirect=True)
at_any_depth = pytest.mark.parametrize("raw", ["lfw", "fashion"], indirect=True)  # the third reads known names only
each_archive = pytest.mark.parametrize(
    "raw, kind", [("movielens", ".zip"), *product(("lfw", "fashion"), (".tgz", ".tar", ".zip"))], indirect=["raw"]
)


@pytest.fixture
def raw(request, monkeypatch, tmp_path):
    """A small Raw set, and an empty data folder."""
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "data"))
    return MAKERS[request.param](monkeypatch)


@pytest.fixture
def prepared(raw, tmp_path):
    """A prepared file, which has to outlive every failure."""
    pack(tmp_path / "data", {raw.prepared: b"old"})
    before = stored(tmp_path / "data")
    yield
    assert stored(tmp_path / "data") == before


# ---- the stand-in


@each_set
def test_stand_in_says_so_in_one_line_is_made_once_and_gives_way_to_the_real_set(raw, tmp_path, capsys, monkeypatch):
    for name, line in raw.lines.items():
        raw.load(name)
        assert capsys.readouterr().out.split("\n")[0] == line
    monkeypatch.setattr(raw.module, "make_standin", None)  # calling it would fail
    for name, line in raw.lines.items():
        raw.load(name)
        assert capsys.readouterr().out == line + "\n"
    raw.run("--from", pack(tmp_path / "raw.zip", raw.files))
    capsys.readouterr()
    raw.load(raw.name)
    assert capsys.readouterr().out == ""
    raw.load("tiny")
    assert raw.lines["tiny"] in capsys.readouterr().out


@each_set
def test_damaged_stand_in_is_made_again(raw, tmp_path):
    raw.load("tiny")
    whole = stored(tmp_path / "data")
    path = tmp_path / "data" / next(iter(whole))
    path.unlink() if raw.name == "lfw" else path.write_bytes(path.read_bytes()[:-100])
    raw.load("tiny")
    assert stored(tmp_path / "data") == whole


@each_set
def test_two_processes_that_make_a_stand_in_at_once_get_the_same(raw, tmp_path, monkeypatch):
    make, faster = raw.module.make_standin, {}

    def slower(*args):
        monkeypatch.setattr(raw.module, "make_standin", make)
        raw.load("tiny")  # the other process begins and ends meanwhile
        faster.update({path: path.stat().st_ino for path in (tmp_path / "data").rglob("*tiny*/*/*/*.jpg")})
        return make(*args)

    monkeypatch.setattr(raw.module, "make_standin", slower)
    raw.load("tiny")
    whole = stored(tmp_path / "data")
    assert all(path.stat().st_ino == number for path, number in faster.items()), "another may be reading these"
    assert len(faster) == (6 if raw.name == "lfw" else 0)
    raw.load("tiny", tmp_path / "alone")
    assert stored(tmp_path / "alone") == whole


# ---- raw -> prepared


@at_any_depth
@pytest.mark.parametrize("kind", [".tgz", ".tar", ".zip", "unpacked"])
@pytest.mark.parametrize("root", ["", "a/b/"])
def test_each_kind_of_archive_at_any_depth(raw, tmp_path, kind, root):
    files = {root + name: content for name, content in raw.files.items()}
    raw.run("--from", pack(tmp_path / f"raw{kind}", {"../../escaped.txt": b"", **files} if "." in kind else files))
    assert stored(tmp_path / "data" / raw.name / raw.name) == raw.files
    assert not list(tmp_path.parent.rglob("escaped.txt"))


@at_any_depth
def test_folder_that_holds_one_archive(raw, tmp_path, capsys):
    (tmp_path / "raw").mkdir()
    pack(tmp_path / "raw" / "one.tgz", raw.files)
    raw.run("--from", tmp_path / "raw", "--data", tmp_path / "other")
    assert raw.prepared in stored(tmp_path / "other")
    pack(tmp_path / "raw" / "two.zip", raw.files)
    assert "several archives (one.tgz, two.zip)" in raw.refused(capsys, "--from", tmp_path / "raw")


# ---- bad input


@each_archive
def test_damaged_archive_and_one_of_something_else(raw, tmp_path, prepared, capsys, kind):
    path = pack(tmp_path / f"bad{kind}", raw.files)
    whole, content = path.read_bytes(), next(iter(raw.files.values()))
    for damaged in (b"", whole[: len(whole) // 3], whole[: len(whole) * 2 // 3], b"<html>not found</html>" * 100):
        path.write_bytes(damaged)
        message = raw.refused(capsys, "--from", path)
        assert f"{path} is not a whole" in message and "archive" in message
    if (raw.name, kind) != ("lfw", ".tar"):  # nothing in a .tar of JPEGs is a checksum
        place = len(whole) // 2 if content not in whole else whole.index(content) + len(content) // 2
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        raw.refused(capsys, "--from", path)
    assert raw.nothing in raw.refused(capsys, "--from", pack(path, {"a.jpg": b"\xff\xd8\xff\xd9"}))


@at_any_depth
def test_archive_cut_between_two_files(raw, tmp_path, prepared, capsys):
    """Nothing but the missing end tells."""
    path = pack(tmp_path / "cut.tar", raw.files)
    with tarfile.open(path) as archive:
        last = archive.getmembers()[-1].offset
    path.write_bytes(path.read_bytes()[:last])
    assert "is not a whole .tgz, .tar or .zip archive (it ends early)" in raw.refused(capsys, "--from", path)


@at_any_depth
@pytest.mark.parametrize("way", ["/a/", "../", "a/../"])
@pytest.mark.parametrize("kind", [".tgz", ".zip"])
def test_names_that_lead_out_of_the_archive(raw, tmp_path, prepared, capsys, kind, way):
    name, content = next(iter(raw.files.items()))
    path = pack(tmp_path / f"bad{kind}", {way + name: content})
    assert f"{path} holds {way + name}, a link or a way out of its folder" in raw.refused(capsys, "--from", path)


@at_any_depth
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, "zip", "folder"])
def test_links_and_devices(raw, tmp_path, prepared, capsys, kind):
    name, content = next(iter(raw.files.items()))
    secret, path = tmp_path / "secret", tmp_path / "bad"
    secret.write_bytes(content)
    if kind == "folder":
        (path / name).parent.mkdir(parents=True)
        (path / name).symlink_to(secret)
    elif kind == "zip":
        member = zipfile.ZipInfo(name)
        member.external_attr = 0o120777 << 16
        with zipfile.ZipFile(path, "w") as out:
            out.writestr(member, str(secret))
    else:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, str(secret)
        with tarfile.open(path, "w") as out:
            out.addfile(member)
    assert (raw.nothing if kind == "folder" else f"holds {name}, a link") in raw.refused(capsys, "--from", path)


@at_any_depth
def test_more_than_one_set(raw, tmp_path, prepared, capsys):
    both = {f"{root}/{name}": content for root in ("a", "b") for name, content in raw.files.items()}
    assert "(a/, b/); name one of them" in raw.refused(capsys, "--from", pack(tmp_path / "both", both))
    name, content = next(iter(raw.files.items()))
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(tmp_path / "twice.zip", "w") as out:
        for _ in range(2):
            out.writestr(name, content)
    assert f"holds {name} twice" in raw.refused(capsys, "--from", tmp_path / "twice.zip")


@each_set
def test_wrong_arguments(raw, tmp_path, capsys):
    with pytest.raises(CourseError, match=f"set is called '{raw.name[:-1]}'; did you mean {raw.name}?"):
        raw.load(raw.name[:-1])
    assert "no such file" in raw.refused(capsys, "--from", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert raw.nothing in raw.refused(capsys, "--from", tmp_path / "empty")
    assert not (tmp_path / "data").exists() or not stored(tmp_path / "data")


# ---- disks


@each_set
def test_no_write_permission(raw, unprivileged, tmp_path, capsys):
    with pytest.raises(CourseError, match="could not write .*: Permission denied"):
        raw.load("tiny", unprivileged)
    message = raw.refused(capsys, "--download", "--mirror", "http://127.0.0.1:9", "--data", unprivileged)
    assert "could not store" in message and "Permission" in message
    assert list(unprivileged.iterdir()) == []


@contextlib.contextmanager
def full_disk():
    """Inside, a write fails midway, on any machine and for any user."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


FULL = os.strerror(errno.EFBIG)


@each_set
def test_full_disk_keeps_the_old_set_and_leaves_no_half_stand_in(raw, tmp_path, prepared, capsys):
    path = pack(tmp_path / "raw.zip", raw.files)
    with full_disk():
        message = raw.refused(capsys, "--from", path)
        with pytest.raises(CourseError, match=f"standin-tiny.*: {FULL}. Make room"):
            raw.load("tiny")
    assert FULL in message and "--data" in message


@each_set
def test_ctrl_c_keeps_the_old_set(raw, tmp_path, prepared, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    path = pack(tmp_path / "raw.zip", raw.files)
    monkeypatch.setattr(os, "replace" if raw.name == "ml-100k" else "rename", interrupted)
    with pytest.raises(SystemExit, match="130"):
        raw.run("--from", path)


# ---- download


@pytest.fixture
def server(raw, tmp_path, monkeypatch):
    """A loopback server that holds what is downloaded, whose checksums count as the published ones."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(raw.script, "BLOCK_BYTES", 10)
    files = raw.files
    if raw.name != "fashion":
        name = raw.downloads[0].split("/")[-1]
        files = {name: pack(tmp_path / name, raw.files).read_bytes()}
    for name, content in files.items():
        if raw.name == "lfw":
            monkeypatch.setitem(raw.script.CHECKSUMS, "original", f"sha256:{hashlib.sha256(content).hexdigest()}")
        else:
            monkeypatch.setitem(raw.script.MD5, name.removesuffix(".zip"), hashlib.md5(content).hexdigest())
    with serving(files) as server:
        yield server


@each_set
def test_download_prepares_and_is_not_repeated(raw, tmp_path, server, capsys):
    for _ in range(2):
        raw.run("--download", "--mirror", f"{server.url}/")
    assert capsys.readouterr().out.count(raw.licence) == 2
    assert server.asked == [None] * len(raw.downloads)
    assert {raw.prepared, *raw.downloads} <= stored(tmp_path / "data").keys()


@each_set
@pytest.mark.parametrize("ranges", [True, False])
def test_download_that_broke_off_resumes(raw, tmp_path, server, capsys, ranges):
    server.ranges, server.breaks_at = ranges, 100
    assert "Run the same command again" in raw.refused(capsys, "--download", "--mirror", server.url)
    assert list(stored(tmp_path / "data")) == [f"{raw.downloads[0]}.part"]
    server.breaks_at = None
    raw.run("--download", "--mirror", server.url)
    assert server.asked[:2] == [None, "bytes=100-"] and len(server.asked) == 1 + len(raw.downloads)
    assert {raw.prepared, *raw.downloads} <= stored(tmp_path / "data").keys()


@each_set
def test_download_whose_last_step_was_lost_is_finished(raw, tmp_path, server):
    name = raw.downloads[0].split("/")[-1]
    pack(tmp_path / "data", {f"{raw.downloads[0]}.part": server.files[name]})
    raw.run("--download", "--mirror", server.url)
    assert not list((tmp_path / "data").rglob("*.part"))
    assert raw.prepared in stored(tmp_path / "data")


@each_set
def test_download_from_nowhere_or_with_another_checksum_leaves_nothing(raw, tmp_path, server, capsys):
    name = raw.downloads[0].split("/")[-1]
    server.files = {**server.files, name: server.files[name] + b"\0"}
    assert f"another checksum than {name}" in raw.refused(capsys, "--download", "--mirror", server.url)
    server.files = dict.fromkeys(server.files, b"")  # answers 416 to anything
    assert "could not download" in raw.refused(capsys, "--download", "--mirror", server.url)
    assert "could not download" in raw.refused(capsys, "--download", "--mirror", "http://127.0.0.1:9")
    assert stored(tmp_path / "data") == {}


@each_set
def test_download_on_a_full_disk_keeps_what_arrived(raw, tmp_path, server, capsys):
    server.files = dict.fromkeys(server.files, bytes(2000))
    with full_disk():
        assert FULL in raw.refused(capsys, "--download", "--mirror", server.url)
    assert list(stored(tmp_path / "data")) == [f"{raw.downloads[0]}.part"]

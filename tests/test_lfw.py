"""What is special about LFW: drawn faces, images in archives, variants; the rest is in test_data_scripts.py."""

import errno
import hashlib
import os
import re

import numpy as np
import pytest
from PIL import Image
from raw_archives import faces, jpeg, pack, serving, stored

from course.datasets import faces as drawn
from course.datasets import lfw
from course.errors import CourseError
from course.loading.loaders import image_paths
from course.system.files import atomic_folder


@pytest.fixture
def raw(monkeypatch, tmp_path):
    """LFW of six images, and an empty data folder."""
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "data"))
    return faces(monkeypatch)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The folder of the stand-in "tiny" in its full size."""
    root = tmp_path_factory.mktemp("tiny")
    lfw.make_standin(root, 40, 240)
    return root


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


def test_pixels_of_this_version():
    """Before compression; means, because libraries round a little differently."""
    person = drawn.random_person(np.random.Generator(np.random.PCG64(1)))
    image = np.asarray(drawn.picture(person, np.random.Generator(np.random.PCG64(2))), float)
    blocks = image.reshape(5, 50, 5, 50, 3).mean((1, 3, 4))
    message = "the generator draws other images: rename STANDIN and write the new numbers here"
    assert np.allclose(blocks[:, 2], MIDDLE, atol=0.5), message


MIDDLE = [178.3, 121.6, 181.1, 164.8, 189.3]  # mean brightness down the middle of a face


# ---- a folder whole or not at all


def test_whole_folder_puts_the_old_one_back_if_the_last_step_fails(tmp_path, monkeypatch):
    path, rename, done = tmp_path / "folder", os.rename, []

    def third_time_unlucky(source, target):
        done.append(source)
        if len(done) == 3:  # new over old, old away, *new in its place*
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    pack(path, {"file": b"old"})
    monkeypatch.setattr(os, "rename", third_time_unlucky)
    with pytest.raises(CourseError, match=os.strerror(errno.EIO)), atomic_folder(path) as new:
        (new / "file").write_text("new")
    assert (path / "file").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["folder"]


# ---- raw -> prepared


def test_only_files_named_as_images_are_taken_and_a_new_set_replaces_all_of_the_old(raw, tmp_path, capsys):
    other = {
        "pairs.txt": b"10 300",
        "Avel_Borin/Avel_Borin_1.jpg": b"",
        "Avel_Borin/._Avel_Borin_0001.jpg": b"as a Mac packs it",
        "Avel_Borin/Cher_0001.jpg": b"",
    }
    target, one = tmp_path / "data" / "lfw" / "lfw", {"Cher/Cher_0001.jpg": raw.files["Cher/Cher_0001.jpg"]}
    raw.run("--from", pack(tmp_path / "lfw.tgz", {**other, **raw.files}))
    assert capsys.readouterr().out.endswith(f"6 images of 3 people (all of LFW are 13,233) -> {target}\n")
    assert stored(target) == raw.files
    raw.run("--from", pack(tmp_path / "one.zip", one))
    assert stored(target) == one


@pytest.mark.parametrize("bad", ["truncated", "no end", "no header", "large", "size"])
def test_image_that_is_not_a_whole_jpeg_of_the_size_is_named(raw, tmp_path, capsys, monkeypatch, bad):
    whole = raw.files["Cher/Cher_0001.jpg"]
    monkeypatch.setattr(raw.script, "IMAGE_BYTES_MAX", 20_000)
    content = {
        "truncated": whole[:-700],
        "no end": whole[:-2],
        "no header": b"\xff\xd8 nothing \xff\xd9",
        "large": whole[:-2] + bytes(20_000) + b"\xff\xd9",
        "size": jpeg((250, 251)),
    }[bad]
    path = pack(tmp_path / "lfw.tgz", {**raw.files, "Cher/Cher_0002.jpg": content})
    words = "has 250 x 251 pixels, but an image of LFW has 250 x 250" if bad == "size" else "is not a whole JPEG file"
    assert f"{path}: Cher/Cher_0002.jpg {words}" in raw.refused(capsys, "--from", path)
    assert stored(tmp_path / "data") == {}


def test_more_images_than_lfw_has(raw, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(raw.script, "N_IMAGES", 5)
    path = pack(tmp_path / "lfw.tgz", raw.files)
    assert "more than the 5 images of LFW" in raw.refused(capsys, "--from", path)


# ---- variants


def test_variants_need_a_download_and_a_place(raw, tmp_path, capsys):
    assert "belong to --download" in raw.refused(capsys, "--from", tmp_path, "--variant", "original")
    message = raw.refused(capsys, "--download", "--variant", "deepfunneled")
    assert "no mirror of lfw-deepfunneled.tgz is known" in message
    assert stored(tmp_path / "data") == {}


@pytest.mark.parametrize("variant, known", [("funneled", True), ("deepfunneled", False)])
def test_each_variant_is_downloaded_from_where_scikit_learn_finds_it_or_a_mirror(
    raw, tmp_path, monkeypatch, variant, known
):
    content = pack(tmp_path / "served.tgz", raw.files).read_bytes()
    monkeypatch.setitem(raw.script.CHECKSUMS, variant, f"sha256:{hashlib.sha256(content).hexdigest()}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving({"5976015": content, raw.script.ARCHIVES[variant]: content}) as server:
        monkeypatch.setitem(raw.script.MIRRORS, variant, f"{server.url}/files/5976015")
        raw.run("--download", "--variant", variant, *([] if known else ["--mirror", server.url]))
    assert stored(tmp_path / "data" / "lfw" / "lfw") == raw.files
    assert (tmp_path / "data" / "lfw" / raw.script.ARCHIVES[variant]).exists()


# ---- as a list


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

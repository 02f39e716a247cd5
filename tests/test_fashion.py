"""What is special about Fashion-MNIST: drawn images, its file format; the rest is in test_data_scripts.py."""

import gzip
import hashlib

import numpy as np
import pytest
import torch
from raw_archives import garments, idx, pack, stored

from course.datasets import fashion
from course.errors import CourseError


@pytest.fixture
def raw(monkeypatch, tmp_path):
    """Fashion-MNIST of 30 and 20 images, and an empty data folder."""
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "data"))
    return garments(monkeypatch)


@pytest.fixture(scope="module")
def tiny():
    """The arrays of the stand-in "tiny" in its full size."""
    return list(fashion.make_standin(1000, 200).values())


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
    assert digest == DIGEST, "the generator draws other images: rename STANDIN and write the new digest here"


DIGEST = "4bb9b6323299d6c46c99f79e6107d3f43408229bf8da4b243a9ec1db845948b3"  # of the four arrays of tiny


def test_floats_normalises_by_the_real_mean_and_deviation(device):
    images = torch.zeros(2, 28, 28, dtype=torch.uint8, device=device)
    images[1, 3, 4] = 255
    x = fashion.floats(images)
    assert (x.shape, x.dtype, x.device) == ((2, 1, 28, 28), torch.float32, images.device)
    assert x[0].unique().tolist() == pytest.approx([-0.2860 / 0.3530])
    assert x[1, 0, 3, 4].item() == pytest.approx((1 - 0.2860) / 0.3530)
    assert (x != x[0, 0, 0, 0]).sum() == 1 and images.sum() == 255


# ---- raw -> prepared -> tensors


@pytest.mark.parametrize("packed", [True, False, "both"])
def test_packed_and_unpacked_files_become_the_same_tensors(raw, tmp_path, capsys, packed):
    unpacked = {name.removesuffix(".gz"): gzip.decompress(content) for name, content in raw.files.items()}
    files = {True: raw.files, False: unpacked, "both": {**unpacked, **raw.files}}[packed]  # torchvision leaves both
    raw.run("--from", pack(tmp_path / "raw.tgz", files))
    target = tmp_path / "data" / "fashion" / "fashion"
    assert capsys.readouterr().out.endswith(f"30 training and 20 test images -> {target}\n")
    if packed:
        assert stored(target) == raw.files, "published files stay as they are"
    data = fashion.load()
    assert data.real and data.name == "fashion"
    tensors = data.train_images, data.train_labels, data.test_images, data.test_labels
    assert [values.dtype for values in tensors] == 2 * [torch.uint8, torch.int64]
    for values, expected in zip(tensors, fashion.make_standin(30, 20, seed=5).values(), strict=True):
        assert np.array_equal(values.numpy(), expected)


# ---- bad input


LABELS = np.arange(30, dtype=np.uint8) % 11
OTHER = idx(np.zeros((30, 32, 28), np.uint8))
BROKEN = {  # kind -> number of the file, its content from what it was, and what `load` has to say about it
    "label 10": (1, lambda whole: idx(LABELS), "the label 10, but 0 to 9 exist"),
    "other size": (0, lambda whole: OTHER, "0000001e000000200000001c, expected"),
    "short": (0, lambda whole: gzip.compress(gzip.decompress(whole)[:-1]), "23,535 bytes"),
    "long": (0, lambda whole: gzip.compress(gzip.decompress(whole) + b"\0"), "23,537 bytes"),
    "empty inside": (0, lambda whole: gzip.compress(b""), "begin with nothing"),
    "truncated": (0, lambda whole: whole[: len(whole) // 2], "ended before the end-of-stream marker"),
    "checksum": (0, lambda whole: whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:], "CRC check failed"),
    "missing": (0, lambda whole: None, "No such file or directory"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_file_is_named_with_the_remedy_whether_raw_or_prepared(raw, tmp_path, capsys, kind):
    number, broken, words = BROKEN[kind]
    file, files = fashion.FILES[number], dict(raw.files)
    if (content := broken(files.pop(file))) is not None:
        files[file] = content
    folder = pack(tmp_path / "data" / "fashion" / "fashion", files)
    with pytest.raises(CourseError, match="python data_scripts/fashion.py --download") as caught:
        fashion.load()
    said = str(caught.value)
    assert f"{folder / file} is damaged (" in said and words in said and "\n" not in said and len(said) < 420
    before = stored(folder)
    message = raw.refused(capsys, "--from", pack(tmp_path / "bad.zip", files))
    assert file in message and ("it lacks" if kind == "missing" else "et it again") in message
    assert stored(folder) == before


def test_set_that_has_the_names_and_sizes_but_is_not_fashion(raw, tmp_path, capsys):
    digits = {name: idx(values) for name, values in fashion.make_standin(30, 20, seed=6).items()}
    message = raw.refused(capsys, "--from", pack(tmp_path / "mnist", digits))
    assert "train-images-idx3-ubyte.gz has other content than Fashion-MNIST as published" in message


def test_file_that_unpacks_to_more_than_there_can_be(raw, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(raw.script, "FILE_BYTES_MAX", 30_000)
    bomb = gzip.compress(gzip.decompress(raw.files[fashion.FILES[0]]) + bytes(1 << 20))
    path = pack(tmp_path / "bomb.tar", {**raw.files, fashion.FILES[0]: bomb})
    assert "30,001 bytes unpacked" in raw.refused(capsys, "--from", path)


def test_validation_images_are_training_images_and_no_others(raw):
    data = fashion.load("tiny")
    n = len(data.train_labels)
    images, labels, validation_images, validation_labels = fashion.with_validation(data)
    assert len(validation_labels) == round(n / 6) and len(labels) == n - round(n / 6)
    both, own = torch.cat([images, validation_images]), fashion.floats(data.train_images)
    assert sorted(image.numpy().tobytes() for image in both) == sorted(image.numpy().tobytes() for image in own)
    assert torch.equal(fashion.with_validation(data)[1], labels)

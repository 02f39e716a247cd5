"""Data for the linear regression: the same to the bit, in bounded memory, no larger than the disk."""

import hashlib
import shutil

import numpy as np
import pytest
import regression as script  # data_scripts/regression.py

from course.datasets import regression
from course.errors import CourseError
from course.loading.records import write_records


def test_data_follows_the_model_and_has_the_numbers_of_this_version(tmp_path):
    made = regression.prepare(1000, 7, seed=3, data=tmp_path)
    x = np.array(made.x)
    assert {a.dtype for a in (made.x, x, made.y, made.w)} == {np.dtype("float32")}
    assert (made.x.shape, made.y.shape, made.w.shape) == ((1000, 7), (1000,), (7,))
    residual = made.y - x @ made.w - made.b
    assert abs(residual.mean()) < 0.15 and abs(residual.std() - regression.NOISE) < 0.1
    assert 0 <= x.min() and x.max() < 1 and abs(x.mean() - 0.5) < 0.02
    digest = hashlib.sha256(x.tobytes() + made.w.tobytes()).hexdigest()
    assert digest == DIGEST, "the generator draws other numbers: rename FOLDER and write the new digest here"


DIGEST = "487638199cf86a2c6aeb5a528494a7b1e526ebed5c64b1a015cd2d0d3c4853f4"  # of x and w


def test_any_slice_is_a_part_of_the_whole_and_all_rows_are_different(tmp_path, monkeypatch):
    monkeypatch.setattr(regression, "CHUNK_VALUES", 60)  # three chunks of ten rows, the last half full
    made = regression.prepare(25, 6, data=tmp_path)
    whole = np.array(made.x)
    assert len(np.unique(whole, axis=0)) == 25
    for part in (slice(None), slice(3, 8), slice(7, 21), slice(19, 25), slice(25, 40), slice(8, 8), -1, 12):
        assert np.array_equal(made.x[part], whole[part])
    assert abs(made.y - whole @ made.w - made.b).max() < 5 * regression.NOISE, "y belongs to these rows"
    with pytest.raises(CourseError, match="asked for X with step 2"):
        made.x[::2]


@pytest.mark.parametrize("content", [None, b"", b"\x93NUMPY", "cut", "fewer"])
def test_damaged_data_is_made_again(tmp_path, content):
    made = regression.prepare(30, 4, data=tmp_path)
    path, y = made.folder / "y.npy", made.y.copy()
    if content is None:
        path.unlink()
    elif content == "fewer":
        np.save(path, y[:-1])
    else:
        path.write_bytes(path.read_bytes()[:-4] if content == "cut" else content)
    assert np.array_equal(regression.prepare(30, 4, data=tmp_path).y, y)


def test_a_disk_that_fills_leaves_nothing(tmp_path, monkeypatch):
    def full(out, y):
        out.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(regression.np, "save", full)
    with pytest.raises(CourseError, match="No space left on device.*fewer rows"):
        regression.prepare(30, 4, data=tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("rows, columns, seed", [(0, 4, 0), (4, 0, 0), (4, 4, -1)])
def test_numbers_without_sense_are_refused(tmp_path, rows, columns, seed):
    with pytest.raises(CourseError, match=f"asked for {rows} rows, {columns} columns and seed {seed}"):
        regression.prepare(rows, columns, seed, data=tmp_path)


def test_command_makes_the_data_and_says_where(tmp_path, capsys):
    script.main(["--rows", "100", "--columns", "5", "--seed", "2", "--data", str(tmp_path)])
    assert f"{tmp_path / 'regression' / '100x5-seed2-drawn'}: 100 rows of 5, 0.00 GB" in capsys.readouterr().out


def _free(monkeypatch, nbytes):
    """Let the disk have `nbytes` free."""
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(regression.shutil, "disk_usage", lambda path: usage._replace(free=nbytes))


def test_the_peak_of_disk_is_told_before_anything_is_written_and_is_what_is_written(tmp_path, monkeypatch, capsys):
    said, make = [], regression._labels

    def late(*args):
        said.append(capsys.readouterr().out)
        return make(*args)

    monkeypatch.setattr(regression, "SAID_FROM_BYTES", 10**6)
    monkeypatch.setattr(regression, "_labels", late)
    _free(monkeypatch, 10**10)
    made = regression.prepare(3000, 100, data=tmp_path)
    assert f"{tmp_path / 'regression'} gets one file of 0.0 GB, nothing twice; 10.0 GB are free." in said[0]
    write_records(made.folder / regression.RECORDS, made)
    written = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert written == pytest.approx(regression.record_bytes(3000, 100), rel=0.01)
    _free(monkeypatch, 0)  # all is there: nothing is asked for again
    assert regression.prepare(3000, 100, data=tmp_path) == made and len(said) == 1


def test_rows_shrink_to_the_disk_and_later_parts_find_the_same(tmp_path, monkeypatch, capsys):
    _free(monkeypatch, 10**6)
    made = regression.prepare(10_000, 100, data=tmp_path)
    assert made.rows == 1000 and regression.record_bytes(1000, 100) < 0.8 * 10**6
    assert "10,000 rows take 0.0 GB, 0.0 GB are free: here are 1,000 rows." in capsys.readouterr().out
    (made.folder / regression.RECORDS).write_bytes(b"its record file")
    _free(monkeypatch, 10**4)
    assert regression.prepare(10_000, 100, data=tmp_path) == made
    with pytest.raises(CourseError, match=r"1,000 rows take .* GB are free.*fewer rows"):
        regression.prepare(10_000, 200, data=tmp_path)

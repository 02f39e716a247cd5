"""The command `python -m course.lfw_dataset`: the seed's flags, figures, timings, one sentence for what goes wrong."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import ROOT
from PIL import Image

from course.commands import lfw_dataset
from course.notebook.solutions import masters


@pytest.fixture
def faces(tmp_path):
    """Ten images of two people."""
    rng = np.random.default_rng(0)
    for person, n in (("Ada_Bor", 4), ("Cid_Dun", 6)):
        (tmp_path / "faces" / person).mkdir(parents=True)
        for i in range(1, n + 1):
            pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "faces" / person / f"{person}_{i:04}.jpg")
    return tmp_path / "faces"


@pytest.fixture(autouse=True)
def no_window(monkeypatch):
    monkeypatch.setattr(lfw_dataset.webbrowser, "open", lambda address: None)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_without_arguments_it_says_what_it_found_and_what_to_try(monkeypatch, faces, capsys):
    monkeypatch.setattr(lfw_dataset.lfw, "folder", lambda: faces)
    lfw_dataset.main([])
    out = capsys.readouterr().out
    assert "10 images" in out and "Ada Bor, (3, 16, 16), torch.float32" in out and "-get_timing" in out


@pytest.mark.parametrize("dash", ["-", "--"])
def test_a_batch_is_drawn_into_a_file(faces, tmp_path, dash):
    flags = ["path_to_folder", str(faces), "visualize_batch", "batch_size", "4", "save", str(tmp_path / "new")]
    names = ("path_to_folder", "visualize_batch", "batch_size", "save")
    lfw_dataset.main([dash + flag if flag in names else flag for flag in flags])
    with Image.open(tmp_path / "new" / "lfw_batch.png") as picture:
        assert picture.size[0] > 100


def test_timing_prints_draws_and_predicts(faces, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(lfw_dataset, "effective_cores", lambda data: 1.8)
    flags = f"-path_to_folder {faces} -get_timing -num_workers 0 1 2 3 -batch_size 4 -heavy -save {tmp_path}"
    lfw_dataset.main(flags.split())
    out = capsys.readouterr().out
    assert "100 batches of 4 asked, there are 3" in out
    lines = re.findall(r"^(\d) workers?: \d+\.\d{3} ± \d+\.\d{3} s for 3 batches, [\d,]+ images/s$", out, re.M)
    assert lines == ["0", "1", "2", "3"]
    assert re.search(r"predicted from one worker, ms per batch: 0: .*; take \d workers", out)
    assert (tmp_path / "lfw_timing.png").exists()


@pytest.mark.parametrize("path", ["missing", "missing.jpg"])
def test_a_folder_without_images_is_a_sentence(tmp_path, path):
    with pytest.raises(SystemExit, match="error: .*missing"):
        lfw_dataset.main(["-path_to_folder", str(tmp_path / path)])


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_broken_image_is_named_in_one_line_and_one_of_another_size_is_a_sentence(faces, workers):
    flags = f"-path_to_folder {faces} -get_timing -num_workers {workers} -batch_size 4".split()
    (faces / "Cid_Dun" / "Cid_Dun_0006.jpg").write_text("<html>Not found</html>")
    with pytest.raises(SystemExit, match="Cid_Dun/Cid_Dun_0006.jpg") as error:
        lfw_dataset.main(flags)
    assert "\n" not in str(error.value)
    Image.new("RGB", (9, 9)).save(faces / "Ada_Bor" / "Ada_Bor_0002.jpg")
    with pytest.raises(SystemExit, match="several sizes"):
        lfw_dataset.main(flags)


@pytest.mark.parametrize("flags", ["-num_workers -1", "-num_workers two", "-batch_size 0", "-batches_to_check 0"])
def test_wrong_numbers_are_refused(flags, capsys):
    with pytest.raises(SystemExit):
        lfw_dataset.main(flags.split())
    assert "numbers of 0 or more" in (err := capsys.readouterr().err) or "invalid int value: 'two'" in err


def notebook(path, *sources):
    cells = [{"cell_type": "code", "source": source.splitlines(True)} for source in sources]
    path.write_text(json.dumps({"cells": cells}))
    return str(path)


def own_notebooks(folder):
    """A notebook for each part of the unit, all exercises solved, with a `name` of its own."""
    folder.mkdir()
    for master in masters("01_parallel_loading"):
        text = master.read_text()
        own = text.replace('return self.paths[i].parent.name.replace("_", " ")', 'return "my own"')
        assert (own != text) == ("class LFWDataset" in text)
        notebook(folder / f"{master.stem}.ipynb", "%matplotlib inline\n!echo hello", own)
    return folder


@pytest.mark.parametrize("file, flags, words", [
    ("1_what_starves_a_training.ipynb", "", "the first is my own"),
    ("", "-get_timing -num_workers 0 -batch_size 4 -batches_to_check 2", "s for 2 batches"),
])  # fmt: skip
def test_the_answers_of_a_notebook_or_a_folder_of_them_are_used(faces, tmp_path, capsys, file, flags, words):
    own = own_notebooks(tmp_path / "own") / file
    lfw_dataset.main(f"-path_to_folder {faces} -answers {own} {flags}".split())
    out = capsys.readouterr().out
    assert "the first is my own" in out and words in out


def test_an_unfinished_or_broken_notebook_is_a_sentence(faces, tmp_path):
    (tmp_path / "text.ipynb").write_text("{}")
    stub = "class LFWDataset:\n    def __init__(self, *a):\n        raise NotImplementedError()"
    for path, words in (
        (notebook(tmp_path / "stub.ipynb", stub), "missing or unfinished"),
        (notebook(tmp_path / "nothing.ipynb", "x = 1"), "missing or unfinished"),
        (notebook(tmp_path / "broken.ipynb", "def f(:"), "cannot be read"),
        (tmp_path / "text.ipynb", "is not a notebook"),
        (tmp_path / "missing.ipynb", "no such notebook"),
        (faces, "no such notebook or folder"),
    ):
        with pytest.raises(SystemExit, match=words):
            lfw_dataset.main(["-path_to_folder", str(faces), "-answers", str(path)])


def test_it_runs_as_a_module_without_a_byte_on_stderr(faces):
    flags = f"-path_to_folder {faces} -get_timing -num_workers 0 2"
    strict = "-W error -W ignore::DeprecationWarning"  # those of libraries; pytest lets ours fail the tests above
    done = subprocess.run([sys.executable, *f"{strict} -m course.lfw_dataset {flags}".split()], cwd=faces.parent,
                          capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), "PATH": ""})  # fmt: skip
    assert done.returncode == 0 and done.stderr == "" and "figure: lfw_timing.png" in done.stdout

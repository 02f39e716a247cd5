"""Sequences of unequal lengths: the sets, their file, the script, and what is said about bad input."""

import numpy as np
import pytest
import sequences as script
import torch

from course.datasets import sequences
from course.errors import CourseError


@pytest.mark.parametrize("name", sequences.NAMES)
def test_a_set_is_flat_labelled_and_the_same_every_time(name, tmp_path):
    one, again = sequences.load(name, folder=tmp_path), sequences.load(name, folder=tmp_path)
    assert torch.equal(one.values, again.values) and torch.equal(one.labels, again.labels)
    assert int(one.lengths.sum()) == len(one.values) and int(one.lengths.min()) >= 1
    assert 0 <= int(one.values.min()) and int(one.values.max()) < one.vocabulary
    assert 0.4 < float(one.labels.mean()) < 0.6
    assert len(sequences.load(name, rows=20, folder=tmp_path)) == 20


def test_demo_lengths_are_as_frequent_as_they_are_short():
    lengths = sequences.draw("demo", rows=100_000).lengths
    share = torch.bincount(lengths, minlength=65)[[1, 4, 16, 64]] / len(lengths)
    expected = torch.tensor([64.0, 16, 4, 1]) / 85
    assert torch.allclose(share, expected, atol=0.01)


@pytest.mark.parametrize("name", ["demo", "lognormal"])
def test_a_drawn_label_says_whether_the_marker_is_there_at_every_length(name):
    data = sequences.draw(name)
    for tokens, label in (data[i] for i in range(len(data))):
        assert bool((tokens == sequences.MARKER).any()) == bool(label)
    short = data.lengths <= data.lengths.median()
    assert abs(float(data.labels[short].mean() - data.labels[~short].mean())) < 0.1


def test_collate_makes_a_flat_batch():
    data = sequences.draw("demo", rows=8)
    values, lengths, labels = sequences.collate([data[i] for i in (3, 1)])
    assert lengths.tolist() == [len(data[3][0]), len(data[1][0])] and len(values) == int(lengths.sum())
    assert labels.tolist() == [data.labels[3], data.labels[1]]
    assert torch.equal(torch.cat([data[i][0] for i in range(8)]), data.values), "an item is its own tokens"


def test_what_is_no_set_and_no_batch_is_one_sentence(tmp_path):
    with pytest.raises(CourseError, match="no sample in it"):
        sequences.collate([])
    with pytest.raises(CourseError, match="sample 1 of a batch has no token"):
        sequences.collate([(torch.tensor([1]), torch.tensor(0.0)), (torch.tensor([]), torch.tensor(1.0))])
    with pytest.raises(CourseError, match="did you mean demo"):
        sequences.load("dmeo", folder=tmp_path)
    with pytest.raises(CourseError, match="at least 1"):
        sequences.load("demo", rows=0, folder=tmp_path)


def test_the_script_keeps_a_set_of_ones_own_lengths_or_a_larger_drawn_one(tmp_path, capsys):
    (tmp_path / "own.csv").write_text("length\n3\n1\n12\n")
    script.main(["mine", "--from", str(tmp_path / "own.csv"), "--data", str(tmp_path)])
    assert "3 sequences, 16 tokens, longest 12" in capsys.readouterr().out
    assert sequences.load("mine", folder=tmp_path).lengths.tolist() == [3, 1, 12]
    script.main(["demo", "--rows", "2000", "--seed", "4", "--data", str(tmp_path)])
    assert len(sequences.load("demo", folder=tmp_path)) == 2000


@pytest.mark.parametrize("text", ["", "length\n", "3\n0\n", "3\nfour\n"])
def test_lengths_that_are_none_are_refused(text, tmp_path):
    (tmp_path / "own.csv").write_text(text)
    with pytest.raises(SystemExit, match="whole numbers of 1 or more"):
        script.main(["mine", "--from", str(tmp_path / "own.csv"), "--data", str(tmp_path)])
    assert not (tmp_path / "sequences").exists()


def test_a_damaged_file_is_one_sentence(tmp_path):
    file = tmp_path / "sequences" / "mine.npz"
    sequences.save(sequences.draw("demo", rows=4), file)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CourseError, match="is damaged .*make it again with data_scripts"):
        sequences.load("mine", folder=tmp_path)
    with open(file, "wb") as out:
        np.savez(out, values=np.arange(3), lengths=np.array([2, 2]), labels=np.zeros(2), vocabulary=8, real=False)
    with pytest.raises(CourseError, match="do not belong together"):
        sequences.load("mine", folder=tmp_path)

"""Seeds of a batch: secret, drawn anew for each, the same when it is started again."""

import stat

import pytest

from course.errors import CourseError
from instructor.grading import seeds
from instructor.grading.limits import SEED_DRAWS, SEED_MAX
from instructor.grading.plan import Plan

UNIT = "03_large_batch"


def test_a_batch_keeps_its_secret_until_it_has_ended(tmp_path):
    first = seeds.secret_of(tmp_path, again=False)
    assert seeds.secret_of(tmp_path, again=False) == first, "something ended it: the rest is asked the same"
    seeds.finished(tmp_path)
    assert seeds.secret_of(tmp_path, again=True) == first, "graded again, it asks the same"
    seeds.finished(tmp_path)
    assert seeds.secret_of(tmp_path, again=False) != first
    assert stat.S_IMODE((tmp_path / seeds.FILE).stat().st_mode) == 0o600


def test_a_batch_settles_on_its_seeds_until_it_has_ended(tmp_path):
    first = seeds.secret_of(tmp_path, again=False)
    seeds.keep_draws(tmp_path, {"unit a": 1})
    seeds.keep_draws(tmp_path, {"unit b": 0})
    assert seeds.secret_of(tmp_path, again=False) == first
    assert seeds.draws_of(tmp_path) == {"unit a": 1, "unit b": 0}
    seeds.finished(tmp_path)
    seeds.secret_of(tmp_path, again=False)
    assert seeds.draws_of(tmp_path) == {}


def test_a_damaged_file_is_drawn_anew(tmp_path):
    (tmp_path / seeds.FILE).write_text("[3")
    assert len(seeds.secret_of(tmp_path, again=True)) == 32


def test_every_cell_has_a_seed_of_its_own():
    plans = [Plan(UNIT, secret=secret) for secret in ("a", "b")]
    drawn = [
        {check.cell: check.seed for part in plan.parts.values() for check in part.checks.values()} for plan in plans
    ]
    assert all(0 < seed <= SEED_MAX for seeds_ in drawn for seed in seeds_.values())
    for cells in drawn:
        assert len({*cells.values()}) == len(cells)
    assert all(drawn[0][cell] != drawn[1][cell] for cell in drawn[0])
    known = {c.cell: c.seed for p in Plan(UNIT).parts.values() for c in p.checks.values()}
    assert {seed for cell, seed in known.items() if cell.endswith("-visible")} == {0}


def test_a_seed_with_which_a_right_answer_fails_is_drawn_anew():
    part = next(iter(Plan(UNIT, secret="a").parts.values()))
    cell, check = next(iter(part.checks.items()))
    assert not part.accept(cell, {"is_class": False, "expected": {}, "is_fair": False})
    assert part.checks[cell].seed != check.seed and cell not in part.right
    assert part.accept(cell, {"is_class": False, "expected": {}, "is_fair": True}) and cell in part.right
    assert part.draws == {f"{UNIT} {cell}": 1}


def test_a_seed_that_was_settled_on_stays_even_if_a_right_answer_fails_later():
    part = next(iter(Plan(UNIT, secret="a").parts.values()))
    cell = next(iter(part.checks))
    part.accept(cell, {"is_class": False, "expected": {}, "is_fair": False})
    part.accept(cell, {"is_class": False, "expected": {}, "is_fair": True})
    again = next(iter(Plan(UNIT, secret="a", draws=part.draws).parts.values()))
    assert again.checks[cell].seed == part.checks[cell].seed
    assert not again.accept(cell, {"error": "the machine is too busy"}), "the same once more"
    assert again.checks[cell] == part.checks[cell]
    assert again.accept(cell, {"is_class": False, "expected": {}, "is_fair": False})


def test_a_reference_that_fails_with_every_seed_is_an_error():
    part = next(iter(Plan(UNIT, secret="a").parts.values()))
    cell = next(iter(part.checks))
    for _ in range(SEED_DRAWS):
        assert not part.accept(cell, {"error": "it fails"})
    with pytest.raises(CourseError, match="it fails"):
        part.accept(cell, {"error": "it fails"})

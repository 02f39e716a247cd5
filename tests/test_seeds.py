"""Seeds of a batch: secret, drawn anew for each, the same when it is started again."""

import stat

from course.grading import seeds
from course.grading.plan import Plan

UNIT = "03_large_batch"


def test_a_batch_keeps_its_secret_until_it_has_ended(tmp_path):
    first = seeds.secret_of(tmp_path, again=False)
    assert seeds.secret_of(tmp_path, again=False) == first, "something ended it: the rest is asked the same"
    seeds.finished(tmp_path)
    assert seeds.secret_of(tmp_path, again=True) == first, "graded again, it asks the same"
    seeds.finished(tmp_path)
    assert seeds.secret_of(tmp_path, again=False) != first
    assert stat.S_IMODE((tmp_path / seeds.FILE).stat().st_mode) == 0o600


def test_a_damaged_file_is_drawn_anew(tmp_path):
    (tmp_path / seeds.FILE).write_text("[3")
    assert len(seeds.secret_of(tmp_path, again=True)) == 32


def test_every_cell_has_a_seed_of_its_own():
    plans = [Plan(UNIT, secret=secret) for secret in ("a", "b")]
    found = [
        {check.cell: check.seed for part in plan.parts.values() for check in part.checks.values()} for plan in plans
    ]
    assert all(0 < seed <= seeds.LARGEST for seeds_ in found for seed in seeds_.values())
    for cells in found:
        assert len({*cells.values()}) == len(cells)
    assert all(found[0][cell] != found[1][cell] for cell in found[0])
    known = {c.cell: c.seed for p in Plan(UNIT).parts.values() for c in p.checks.values()}
    assert {seed for cell, seed in known.items() if cell.endswith("-visible")} == {0}


def test_a_seed_with_which_a_right_answer_fails_is_drawn_anew():
    part = next(iter(Plan(UNIT, secret="a").parts.values()))
    cell, check = next(iter(part.checks.items()))
    assert not part.found(cell, {"is_class": False, "expected": {}, "is_fair": False})
    assert part.checks[cell].seed != check.seed and cell not in part.right
    assert part.found(cell, {"is_class": False, "expected": {}, "is_fair": True}) and cell in part.right

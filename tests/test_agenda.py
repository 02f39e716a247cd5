"""course agenda: the minutes are those of the units, and they add up, for every length of a workshop."""

import re

import pytest
from click.testing import CliRunner

from course.errors import CourseError
from course.notebook import registry as units
from instructor.show import agenda
from instructor.show.agenda import DAY, OPEN, PART, PAUSE, WORK, plan, sessions_of

pytestmark = pytest.mark.check
LENGTHS = [dict(hours=h) for h in (0.75, 1, 1.5, 2, 3, 4, 7)] + [dict(days=d) for d in (1, 2, 5)]
LENGTHS += [dict(weeks=6), dict(weeks=3, hours=1.5)]


@pytest.fixture(scope="module")
def everything():
    return units.all_units()


def asked(hours=None, days=None, weeks=None):
    return sessions_of(hours, days, weeks)


@pytest.mark.parametrize("length", LENGTHS, ids=str)
def test_the_minutes_add_up(length, everything):
    made = plan(asked(**length), everything, one_each="weeks" in length)
    for session in made.sessions:
        assert sum(item.minutes for item in session.items) == session.minutes
        assert all(item.minutes > 0 for item in session.items)
    items = [item for session in made.sessions for item in session.items if item.kind == PART]
    begun = {item.part.unit for item in items}
    core = sum(unit.core_minutes for unit in everything if unit.name in begun)
    assert sum(item.minutes for item in items) + sum(minutes for _, minutes in made.left) == core
    assert len({name for item in items for name in item.exercises}) == sum(len(item.exercises) for item in items)


@pytest.mark.parametrize("length", LENGTHS, ids=str)
def test_nobody_works_for_longer_than_an_hour_without_a_break(length, everything):
    for session in plan(asked(**length), everything).sessions:
        worked = 0
        for item in session.items:
            worked = 0 if item.kind in (PAUSE, OPEN) else worked + item.minutes * (item.kind == PART)
            assert worked <= WORK


def test_ten_days_do_the_core_of_everything_in_order(everything):
    made = plan(asked(days=10), everything)
    items = [item for session in made.sessions for item in session.items if item.kind == PART]
    core = [e.name for unit in everything for part in unit.parts if part.core_minutes for e in part.exercises if e.core]
    assert made.left == [] and [name for item in items for name in item.exercises] == core
    assert sum(minutes for _, minutes in DAY) * 10 == sum(session.minutes for session in made.sessions)


def test_a_unit_per_week(everything):
    made = plan(asked(weeks=len(everything)), everything, one_each=True)
    for session, unit in zip(made.sessions, everything, strict=True):
        assert {item.part.unit for item in session.items if item.part} == {unit.name}
    with pytest.raises(CourseError, match="weeks were asked for, a unit each"):
        plan(asked(weeks=len(everything) + 1), everything, one_each=True)


def test_the_command_prints_clock_times_that_follow_from_the_minutes():
    said = CliRunner().invoke(agenda.agenda, ["--hours", "2", "--unit", "05", "--start", "14:15"]).output
    rows = re.findall(r"^ +(\d+):(\d\d) +(\d+ min|End)", said, re.M)
    times = [60 * int(hours) + int(minutes) for hours, minutes, _ in rows]
    lengths = [int(text.split()[0]) for _, _, text in rows[:-1]]
    assert times[0] == 14 * 60 + 15 and times[-1] == times[0] + 120
    assert [after - before for before, after in zip(times, times[1:], strict=False)] == lengths
    assert max(map(len, said.splitlines())) <= 100


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "say how long: --hours 2"),
        (["--hours", "2", "--days", "1"], "say how long"),
        (["--hours", "0.2"], "12 minutes were asked for"),
        (["--hours", "2", "--start", "25:00"], "'25:00' is not a time of day"),
        (["--hours", "2", "--unit", "fast_laoding"], "did you mean 04_fast_loading"),
    ],
)
def test_a_mistake_is_one_sentence(words, says):
    error = CliRunner().invoke(agenda.agenda, words).exception
    assert isinstance(error, CourseError) and says in str(error)

"""course guide: everything an instructor asks for is in it, taken from the unit as it is now."""

import re

import pytest
from click.testing import CliRunner
from conftest import ROOT

from course import units
from course.checks.known_answers import load_mistakes
from course.publish import guide
from course.publish.claims import all_claims
from course.publish.guide import guide_text, sections


@pytest.mark.parametrize("unit", units.units())
def test_the_guide_has_every_exercise_and_every_claim_of_a_unit(unit):
    text, whole = guide_text(unit), units.load_unit(unit)
    for part in whole.parts:
        assert f"## {part.number} {part.title}" in text and part.question in text
        for exercise in part.exercises:
            if exercise.asked:
                assert f"**Exercise** `{exercise.name}`, " in text, exercise.name
    titles = {s.title for part in whole.parts for s in sections(part)}
    shown = {(c.sentence, c.value) for part in whole.parts for s in sections(part) for c in s.claims}
    executed = {(found.claim.sentence, found.claim.value) for found in all_claims() if found.unit == unit}
    assert len(titles) >= len(whole.parts) and shown <= executed
    assert len(shown) > len(executed) // 2, "sections are found by their titles: build --execute renews the notebooks"


@pytest.mark.parametrize("unit", units.units())
def test_most_sections_have_a_sentence_to_say_and_core_exercises_a_question_and_a_mistake(unit):
    found = [s for part in units.load_unit(unit).parts for s in sections(part)]
    assert all(s.summary for s in found), [s.title for s in found if not s.summary]
    for exercise, hint in [pair for s in found for pair in s.exercises if pair[0].core]:
        assert hint and len(load_mistakes(unit, exercise.name)) >= guide.MOST_MISTAKES, exercise.name


@pytest.mark.parametrize("unit", units.units())
def test_every_unit_has_a_page_written_by_hand_on_top_of_its_guide(unit):
    page = (ROOT / "docs" / "workshop" / f"{unit}.md").read_text()
    for word in ("**Open with**", "**Prepare**", "**Live", "**What flips**", "**Cut first**"):
        assert word in page, word
    assert page.partition("\n")[2].strip() in guide_text(unit)
    assert f"workshop/{unit}.md" in (ROOT / "docs" / "workshop.md").read_text()


def test_the_commands_of_the_workshop_page_exist():
    from course import cli

    pages = [ROOT / "docs" / "workshop.md", ROOT / "docs" / "tutor.md", *(ROOT / "docs" / "workshop").glob("*.md")]
    for page in pages:
        for verb in re.findall(r"`course ([a-z]+)", page.read_text()):
            assert verb in cli.verbs.list_commands(None), f"{page.name}: course {verb}"


def test_one_part_alone():
    said = CliRunner().invoke(guide.guide, ["05/3"])
    assert not said.exception
    assert said.output.count("\n## ") == 1 and "BucketBatchSampler" in said.output

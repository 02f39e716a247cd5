"""Results of grading in nbgrader's records: as its own autograde leaves them, whole or not at all, and harmless."""

import base64
import html.parser
import io
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import timedelta

import nbformat
import pytest
from conftest import ROOT
from markup import hostile
from nbformat.v4 import new_code_cell, new_notebook
from nbgrader import preprocessors as nbg
from nbgrader import utils
from nbgrader.api import Gradebook
from nbgrader.apps.api import NbGraderAPI
from nbgrader.plugins import CsvExportPlugin
from PIL import Image
from submissions import DUE, UNIT, enter, grade_cells, graded, part_of, release, sources, with_text

from course.errors import CourseError
from course.notebook.cells import grade_id
from course.notebook.registry import parts
from course.system.files import write_text
from instructor.authoring import masters
from instructor.grading import analysis, demo, exchange, feedback, gradebook, pending_results
from instructor.grading import plots as grading
from instructor.grading.folders import course_folders
from instructor.grading.results import Mark, Submission
from instructor.grading.sanitize import safe_code, safe_markdown, safe_output, safe_text

ODD = 'Zoë O\'Neil; "x" <b>{0} & ¥100%'


def book(course):
    return Gradebook(f"sqlite:///{course / 'gradebook.db'}")


def state(course, learner="ann"):
    """What formgrader and export read of a submission."""
    with book(course) as b:
        submission = b.find_submission(UNIT, learner)
        parts = sorted(submission.notebooks, key=lambda notebook: notebook.name)
        grades = {(n.name, g.name): (g.auto_score, g.manual_score, g.extra_credit, g.needs_manual_grade)
                  for n in parts for g in n.grades}  # fmt: skip
        comments = {(n.name, c.name): (c.auto_comment, c.manual_comment) for n in parts for c in n.comments}
        penalties = [notebook.late_submission_penalty for notebook in parts]
        return grades, comments, penalties, submission.timestamp, [notebook.score for notebook in parts]


def thirds(number):
    return (number % 3) / 2


def test_marks_become_grades_and_the_autograded_notebook_says_the_same(course):
    given = [graded(who, thirds, "my answer") for who in ("ann", ODD)]
    assert enter(course, *given) == 2
    scores = gradebook.scores(UNIT, course)
    for one in given:
        assert scores[one.learner] == {mark.cell: (mark.score, mark.points) for mark in one.marks}
        folder = course / "autograded" / one.learner / UNIT
        notebooks = [nbformat.read(folder / f"{part}.ipynb", as_version=4) for part in parts(UNIT)]
        cells = [cell for nb in notebooks for cell in grade_cells(nb) if cell.cell_type == "code"]
        assert {grade_id(cell): utils.determine_grade(cell) for cell in cells} == scores[one.learner]
        assert (folder / "timestamp.txt").read_text() == "2026-03-01 12:00:00.000000 UTC"
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o444}
    records = gradebook.records(course)
    assert [one.learner for one in records] == [ODD, "ann"]
    assert records[1].marks == given[0].marks and records[1].received == DUE and records[1].parts[0].notebook is None


def by_hand(course):
    """A teacher grades: a text, a test that failed, extra credit, a comment."""
    with book(course) as b:
        notebook = b.find_submission_notebook(with_text(), UNIT, "ann")
        text, *tests = sorted(notebook.grades, key=lambda g: g.cell.cell_type == "code")
        text.manual_score, text.needs_manual_grade, text.extra_credit = 2, False, 1
        tests[0].manual_score, tests[0].needs_manual_grade = 0.5, False
        notebook.comments[0].manual_comment = "well done"
        b.db.commit()


@pytest.mark.parametrize("text", ["my answer", None])
def test_a_new_grading_follows_the_rules_of_nbgraders_own_autograde(text, course):
    """The independent answer: nbgrader's own steps on a copy of the gradebook, with the same autograded notebook."""
    (course / "nbgrader_config.py").write_text("c = get_config()\nc.LateSubmissionPlugin.penalty_method = 'zero'\n")
    with book(course) as b:
        b.update_or_create_assignment(UNIT, duedate=DUE)
    enter(course, graded(share=thirds, text="first answer"))
    by_hand(course)
    theirs = shutil.copy(course / "gradebook.db", course / "theirs.db")
    late = DUE + timedelta(hours=1)
    second = graded(share=lambda number: 1 - thirds(number), text=text, received=late, fingerprint="g")
    assert enter(course, second) == 1

    with Gradebook(f"sqlite:///{theirs}") as b:
        b.update_or_create_submission(UNIT, "ann", timestamp=late)
    config, _ = course_folders(course)
    for part in parts(UNIT):
        path = course / "autograded" / "ann" / UNIT / f"{part}.ipynb"
        request = {"notebook": part, "assignment": UNIT, "student": "ann", "db_url": f"sqlite:///{theirs}"}
        for step in (nbg.SaveAutoGrades(), nbg.AssignLatePenalties(config=config)):
            step.preprocess(nbformat.read(path, as_version=4), {"nbgrader": request})
    mine = state(course)
    shutil.move(theirs, course / "gradebook.db")
    assert mine == state(course)
    grades, comments, penalties, timestamp, scores = mine
    assert penalties == scores and min(scores) > 0 and timestamp == late.replace(tzinfo=None)
    assert [c for c in comments.values() if c[0] == "No response."] or text
    assert any(manual == 2 and needs for _, manual, _, needs in grades.values()), "looked at again"


def test_entering_again_what_is_there_leaves_a_teachers_work_alone(course):
    one = graded(text="my answer")
    enter(course, one)
    by_hand(course)
    before = state(course)
    assert enter(course, one) == 0
    assert state(course) == before
    with book(course) as b:
        b.remove_submission(UNIT, "ann")
    assert gradebook.records(course) == [], "removed in nbgrader, so not graded"


def test_a_result_comes_back_whole_or_is_named_and_none_is_left_where_no_grader_is(tmp_path):
    one = graded(ODD)
    file = pending_results.path_of(tmp_path, one)
    pending_results.save(tmp_path, one)
    loaded = pending_results.load(file)
    assert loaded.marks == one.marks and loaded.parts[0].notebook.cells and [*tmp_path.iterdir()] == [file]
    os.truncate(file, 5000)
    with pytest.raises(CourseError, match="could not read .*json.* Remove it"):
        pending_results.load(file)
    with pytest.raises(CourseError, match="is gone"):
        pending_results.save(tmp_path / "gone", one)


def test_a_merge_that_fails_halfway_enters_nothing_of_that_submission(course, monkeypatch):
    with book(course) as b:
        b.update_or_create_assignment(UNIT, duedate=DUE)
    with monkeypatch.context() as patch:
        patch.setattr("nbgrader.plugins.LateSubmissionPlugin.late_submission_penalty", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            enter(course, graded(received=DUE + timedelta(1)))
    with book(course) as b:
        assert not b.students and not b.assignment_submissions(UNIT)
    assert gradebook.merge((course / "pending").iterdir(), course) == 1
    assert not list((course / "pending").iterdir()) and min(state(course)[-1]) > 0


def test_what_was_not_graded_scores_nothing_and_the_reason_is_told():
    one = graded(note="the notebook is not JSON").parts[1]
    one.marks = one.marks[:1]
    nb = feedback.finished(UNIT, one)
    scores = [utils.determine_grade(c)[0] for c in grade_cells(nb) if c.cell_type == "code"]
    assert scores[0] > 0 and set(scores[1:]) == {0}
    assert nb.cells[0].outputs[0].text == "the notebook is not JSON"
    one.marks = [Mark("other-hidden", 1, 1, "")]
    with pytest.raises(ValueError, match="no grade cell other-hidden"):
        feedback.finished(UNIT, one)


def test_a_gradebook_of_before_the_split_is_prepared_anew_or_refused(course):
    """Its assignment has a notebook that is named like the unit."""
    with book(course) as b:
        b.update_or_create_notebook(UNIT, UNIT)
    gradebook.prepare(UNIT, course, sources())
    with book(course) as b:
        assert sorted(notebook.name for notebook in b.find_assignment(UNIT).notebooks) == parts(UNIT)
        b.update_or_create_notebook(UNIT, UNIT)
        b.update_or_create_student("ann")
        with b.db.no_autoflush:
            b.update_or_create_submission(UNIT, "ann")
    with pytest.raises(CourseError, match="submissions of 03_large_batch with other parts .*another folder"):
        gradebook.prepare(UNIT, course, sources())


def test_a_class_graded_with_a_release_is_told_to_name_it_again(course):
    part = part_of("scaled_lr")
    fewer = sources() | {part: masters.source_notebook(UNIT, part, asked={"scaled_lr"})}
    with book(course) as b:
        b.remove_assignment(UNIT)
    gradebook.prepare(UNIT, course, fewer, "--release class")
    with book(course) as b:
        b.update_or_create_student("ann")
        with b.db.no_autoflush:
            b.update_or_create_submission(UNIT, "ann")
    with pytest.raises(CourseError, match="They were graded with --release class; say so again"):
        gradebook.prepare(UNIT, course, sources())


def test_a_gradebook_that_another_program_holds_is_waited_for_and_then_named(course, monkeypatch, capsys):
    begin = "import sqlite3, sys; book = sqlite3.connect(sys.argv[1]); book.execute('BEGIN EXCLUSIVE')"
    hold = f"{begin}; print(flush=True); sys.stdin.read()"
    call = [sys.executable, "-c", hold, str(course / "gradebook.db")]
    monkeypatch.setattr(gradebook, "WAIT_SECONDS", 0.2)
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        with pytest.raises(CourseError, match=f"gradebook.db is held by .*process {holder.pid}.*continues"):
            gradebook.prepare(UNIT, course, sources())
        assert "waiting up to 0.2 s" in capsys.readouterr().out
        monkeypatch.setattr(gradebook, "WAIT_SECONDS", 60)
        timer = threading.Timer(0.5, holder.stdin.close)
        timer.start()
        gradebook.prepare(UNIT, course, sources())
        timer.join()


def test_a_unit_that_is_not_in_the_gradebook_is_one_sentence(prepared, tmp_path):
    shutil.copy(prepared / "gradebook.db", tmp_path)
    with book(tmp_path) as b:
        b.remove_assignment(UNIT)
    with pytest.raises(CourseError, match="does not know the cells of 03_large_batch .* run `course build` first"):
        enter(tmp_path, graded())


# What a page may show


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


def test_feedback_holds_nothing_that_runs_and_nothing_that_is_secret(course):
    (course / "nbgrader_config.py").write_text("c = get_config()\nc.HTMLExporter.sanitize_html = False\n")
    enter(course, graded("honest", text="an answer"), hostile(ODD))
    feedback.write_pages(UNIT, course)
    pages = [course / "feedback" / who / UNIT for who in ("honest", ODD)]
    assert all(len([*folder.glob("*.html")]) == len(parts(UNIT)) for folder in pages)
    texts = [(folder / f"{with_text()}.html").read_text() for folder in pages]
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
    for cell in (cell for nb in sources().values() for cell in nb.cells):
        if (grade_id(cell) or "").endswith("-hidden"):
            secrets.append(cell.source.splitlines()[1])
        for solution in re.findall(r"BEGIN SOLUTION\n(.*?)END SOLUTION", cell.source, re.S):
            secrets += [line.strip() for line in solution.splitlines() if len(line.strip()) > 30]
    given = "".join(cell.source for part in parts(UNIT) for cell in release(part).cells)
    shown = " ".join(html.unescape(page.read_text()) for folder in pages for page in folder.glob("*.html"))
    assert len(secrets) > 40 and not [secret for secret in secrets if secret in shown and secret not in given]


def test_pages_that_cannot_be_made_name_their_learner_and_those_of_others_are_there(course):
    enter(course, graded("ann"), graded("bob"))
    (course / "autograded" / "ann" / UNIT / f"{parts(UNIT)[0]}.ipynb").write_text("{")
    with pytest.raises(CourseError, match="for ann; the end of its log for ann:\n.*"):
        feedback.write_pages(UNIT, course, workers=2)
    made = {path.parts[-3] for path in (course / "feedback").rglob("*.html")}
    assert made == {"bob"}


def test_pages_of_nbgraders_own_commands_and_of_formgrader_are_clean_by_the_courses_configuration():
    from nbconvert import HTMLExporter

    config, _ = course_folders(ROOT)
    book, exporter = new_notebook(cells=[new_code_cell("x." * 500)]), HTMLExporter(config=config)
    assert exporter.environment.filters["markdown2html"] is safe_markdown
    assert '<div class="highlight"><pre>x.x.' in exporter.from_notebook_node(book)[0]


def test_kept_answers_reach_no_kernel_of_nbgrader_and_every_other_one(monkeypatch):
    """JupyterLab reads the same configuration, so it must not change the environment of the process that reads it."""
    monkeypatch.setenv("COURSE_ANSWERS", "here")
    config, _ = course_folders(ROOT)
    nb = new_notebook(cells=[new_code_cell("import os\nprint(os.environ['COURSE_ANSWERS'])")])
    done, _ = nbg.Execute(config=config).preprocess(nb, {"metadata": {"path": str(ROOT)}})
    assert done.cells[0].outputs[0].text == "off\n" and os.environ["COURSE_ANSWERS"] == "here"


def test_nbgrader_goes_on_from_there(course):
    enter(course, graded("ann", text="an answer"), graded(ODD, thirds))
    demo.nbgrader("generate_feedback", UNIT, course)
    assert (course / "feedback" / ODD / UNIT / f"{part_of('LARS')}.html").is_file()
    with book(course) as b:
        CsvExportPlugin(to=str(course / "grades.csv")).export(b)  # as `nbgrader export` does
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
        metadata = {"x": 1, "image/png": {"width": "1 onload=x"}}
        output = safe_output({"output_type": "display_data", "data": data, "metadata": metadata})
        assert not (output and output.metadata)
        return output and dict(output.data)

    png, jpeg = picture("PNG"), picture("JPEG")
    assert kept({"image/png": png, "text/plain": "<Figure>", "text/html": "x"}) == {
        "image/png": png.replace("\n", ""), "text/plain": "<Figure>"}  # fmt: skip
    assert kept({"image/jpeg": jpeg}) == {"image/jpeg": jpeg.replace("\n", "")}
    for kind, wrong in (("png", jpeg), ("jpeg", png), ("png", png[:20]), ("png", picture("PNG", (9000, 9000)))):
        assert kept({f"image/{kind}": wrong}) is None


@pytest.mark.parametrize(
    "text", ["> " * 5000 + "x", "[" * 30_000, "<b>" * 3000, "![x](attachment:y)", "\\" * 100_000, "\\\\(" * 33_000, ""]
)
def test_a_text_made_to_break_the_parser_is_shown_all_the_same(text):
    began = time.process_time()
    assert isinstance(safe_markdown(text), str) and time.process_time() - began < 3


@pytest.mark.parametrize("text", ["x." * 50_000, "\n".join(["<b>." * 100] * 200), "."])
def test_a_cell_made_to_keep_whoever_colours_it_busy_is_shown_all_the_same(text):
    began, shown = time.process_time(), safe_code(text)
    assert time.process_time() - began < 3 and "<b>" not in shown


def test_a_text_that_never_ends_is_cut():
    assert safe_text("x" * 100_003) == "x" * 100_000 + "\n... 3 more characters\n"
    assert safe_text(["a\r\n", "b\rc\x08", 1]) == "a\nb\nc" and safe_text({}) == ""


# Analysis


def class_of_three():
    """Ann solves all; Bob the visible tests, with a known mistake in lars; the notebook of =Eve cannot be read."""
    ann, bob, eve = (graded(who) for who in ("ann", "bob", "=Eve()"))
    for mark in bob.marks:
        if mark.cell.endswith("-hidden"):
            mark.score = 0
        if mark.cell.startswith("linear_warmup"):
            mark.score, mark.mistake = 0, "first_steps_too_high"
    for result in eve.parts:
        result.marks, result.note = [], "not a notebook, " * 20
    return [ann, bob, eve]


def test_the_table_has_a_line_for_each_learner_and_fits_100_columns():
    text = analysis.table(class_of_three())
    assert max(map(len, text.splitlines())) <= 100
    total = sum(mark.points for mark in graded().marks)
    assert f"{total:g} / {total:g}" in text and f"0 / {total:g} *" in text and f"* =Eve(): {parts(UNIT)[0]}," in text
    assert all(f"  {part}\n" in text for part in parts(UNIT))
    first = next(line for line in text.splitlines() if line.startswith("bob"))
    assert first.split()[1] == "2", "of neumf_forward the visible test"


def test_items_count_who_solved_an_exercise_and_name_the_mistakes(monkeypatch):
    monkeypatch.setattr(analysis, "_advice", lambda unit, name: {"first_steps_too_high": "Start at one step's worth."})
    items = {item.exercise: item for item in analysis.items(class_of_three())}
    assert (items["LARS"].solved, items["LARS"].partly, items["LARS"].mean) == (1 / 3, 1 / 3, 3)
    warmup = items["linear_warmup"]
    assert warmup.partly == 0 and warmup.mistakes == [("first_steps_too_high", 1, "Start at one step's worth.")]
    text = analysis.items_text(items.values())
    assert "1 x first_steps_too_high: Start at one" in text and max(map(len, text.splitlines())) <= 100
    assert "linear_warmup,2,3,0.3333,0.0000,0.6667,first_steps_too_high,1,Start" in analysis.items_csv(items.values())
    figure = grading.shares([*items.values()], "a class of three")
    assert "1 × first_steps_too_high" in [text.get_text() for text in figure.axes[0].texts]


def test_every_known_mistake_has_its_advice():
    assert all(analysis._advice(UNIT, "linear_warmup").values())


def test_names_in_csv_are_no_formulas():
    lines = analysis.table_csv(class_of_three()).splitlines()
    assert [line.split(",")[0] for line in lines] == ["learner", "'=Eve()", "ann", "bob"]
    for name in ("+1", "-1", "@x", " =1", "\t=1"):
        assert analysis.harmless(name).startswith("'")
    assert analysis.harmless(-1.5) == -1.5


def test_the_secret_of_the_exchange_lies_where_release_feedback_looks_and_nobody_is_without_one(tmp_path):
    handed_in = {"ann": b"0af3", "bob": None, "eve": b"two words\n", "new": b"not graded yet"}
    submissions = []
    for learner, secret in handed_in.items():
        place = tmp_path / "inbox" / learner / UNIT
        place.mkdir(parents=True)
        if secret:
            (place / exchange.FILE).write_bytes(secret)
        submissions.append(Submission(learner, UNIT, {"part": place / "part.ipynb"}, DUE))
        if learner != "new":
            (tmp_path / "autograded" / learner / UNIT).mkdir(parents=True)
    secrets = []
    for _ in range(2):
        exchange.hand_on_secrets(submissions, tmp_path)
        secrets.append({path.parts[-3]: path.read_bytes() for path in tmp_path.glob(f"autograded/*/*/{exchange.FILE}")})
    assert secrets[0] == secrets[1] and secrets[0].keys() == {"ann", "bob", "eve"} and secrets[0]["ann"] == b"0af3"
    assert len({*secrets[0].values(), handed_in["eve"]}) == 4, "a made-up one is nobody else's"


def test_formgrader_lists_what_was_graded_as_graded(course):
    place = course / "submitted" / "ann" / UNIT
    write_text(place / f"{parts(UNIT)[0]}.ipynb", "{}")
    os.utime(place, (1000, 1000))
    handed = Submission("ann", UNIT, {parts(UNIT)[0]: place / f"{parts(UNIT)[0]}.ipynb"}, DUE)
    elsewhere = course / "inbox" / "ann" / UNIT
    write_text(elsewhere / "part.ipynb", "{}")
    gradebook.prepare(UNIT, course, sources())
    enter(course, graded())
    exchange.write_times([handed, replace(handed, files={"part": elsewhere / "part.ipynb"})], course)
    assert place.stat().st_mtime == 1000, "the time of the folder, which an inbox is read by, stays"
    assert [path.name for path in elsewhere.iterdir()] == ["part.ipynb"], "no other inbox is written to"
    api = NbGraderAPI(course_folders(course).directory)
    assert UNIT in api.get_source_assignments(), "or Manual Grading and Manage Assignments stay empty"
    (shown,) = api.get_submissions(UNIT)
    assert shown["autograded"] and shown["submitted"] and shown["timestamp"] == DUE.replace(tzinfo=None).isoformat()

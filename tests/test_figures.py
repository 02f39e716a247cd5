"""The figures to play with: what a module computes in a browser, Python computes for its picture."""

import html
import itertools
import json
import math
import re
import subprocess
from pathlib import Path

import pytest
from browser import FLAGS, chromium, started
from IPython.core.formatters import DisplayFormatter
from matplotlib.colors import to_rgba
from nbformat.v4 import new_code_cell, new_notebook

from course import figures
from course.figures import backward_timeline, batch_rate_map, figure, loader_pipeline, padded_batches
from instructor.authoring.execute import executed_notebook
from instructor.show import book, pages

LENGTHS = [1 + (7 * i * i) % 61 for i in range(200)]
LAYERS = [figures.Layer(f"layer {i}", 2.0 + i, 6.0, 10.0) for i in range(5)]
SCORES = [[0.5, 0.6, 0.7, None], [0.4, 0.6, 0.72, 0.2], [0.2, 0.3, 0.6, 0.65]]
MAP = ([256, 1024, 4096], [0.1, 0.2, 0.4, 0.8], SCORES)
# by its module: a figure, values that its sliders are moved to, what Python shows for these, and the number computed
MOVED = {
    "loader_pipeline": (
        figures.pipeline([9.0, 12.0, 8.0], 5.0, workers=2),
        {"workers": 4, "batches": 9, "prefetch": 3, "step_ms": 2.5, "start_ms": 40},
        figures.pipeline([9.0, 12.0, 8.0], 2.5, workers=4, batches=9, prefetch=3, start_ms=40.0),
        lambda: loader_pipeline.schedule([9.0, 12.0, 8.0], 2.5, 4, 9, 3, 40.0)[1],
    ),
    "padded_batches": (
        figures.padding(LENGTHS),
        {"batch_size": 10, "window": 7, "seed": 3},
        figures.padding(LENGTHS, 10, 7, 3),
        lambda: padded_batches.cells_per_token(padded_batches.batches_of(LENGTHS, 10, 7, 3), LENGTHS),
    ),
    "backward_timeline": (
        figures.step_timeline(LAYERS),
        {"bucket_mb": 10, "gbit": 4, "latency_ms": 1.5},
        figures.step_timeline(LAYERS, 10.0, 4.0, 1.5),
        lambda: backward_timeline.schedule(LAYERS, 10.0, 4.0, 1.5)[1],
    ),
    "batch_rate_map": (
        figures.rate_map(*MAP),
        {"power": 0.5, "place": 1},
        figures.rate_map(*MAP, power=0.5, rate=0.2),
        lambda: sum(point.score or 0 for point in batch_rate_map.along_rule(*MAP, 0.5, 0.2)),
    ),
}
MOVE = """<script type="module">
const found = {{}};
for (const figure of document.querySelectorAll(".course-figure")) {{
  const words = () => figure.querySelector("p").textContent;
  const first = words();
  const values = {values}[figure.dataset.figure];
  for (const input of figure.querySelectorAll("input")) {{
    const value = values[input.dataset.name];
    if (value === undefined) throw new Error(`a slider that the test does not move: ${{input.dataset.name}}`);
    input.value = value;
    input.dispatchEvent(new Event("input"));
  }}
  found[figure.dataset.figure] = [first, words(), Number(figure.dataset.total)];
}}
document.title = JSON.stringify(found);
</script>"""


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """A notebook that shows the four figures, as `course build --execute` keeps it."""
    notebook = new_notebook(metadata={"course": {"built_from": "test_figures.py"}})
    setup = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from test_figures import MOVED"
    notebook.cells = [new_code_cell(setup)]
    notebook.cells += [new_code_cell(f"MOVED[{name!r}][0]") for name in MOVED]
    return executed_notebook(notebook, tmp_path_factory.mktemp("answers"), progress=lambda line: None)


@pytest.fixture(scope="module")
def book_page(executed, tmp_path_factory):
    """The page of the book that shows the notebook, as a file."""
    body = "".join(
        f'<div class="output">{pages.output(item)}</div>' for cell in executed.cells for item in cell.outputs
    )
    page = book.Page("figures.html", "Figures", f"<h1>Figures</h1>{body}")
    path = tmp_path_factory.mktemp("book") / page.path
    path.write_text(book._whole(page, [page], []))
    return path


def opened(path, *flags):
    """The page at `path` as Chromium shows it, without scripts."""
    call = [chromium(), "--headless", *FLAGS.split(), *flags, "--dump-dom", path.as_uri()]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60)
    return re.sub("<script.*?</script>", "", done.stdout, flags=re.S)


def test_an_executed_notebook_keeps_the_data_of_a_figure_and_no_widget(executed):
    kept = [cell.outputs[0].data for cell in executed.cells[1:]]
    assert [data.keys() for data in kept] == [{"text/plain", "image/png", figure.MIME}] * len(MOVED)
    assert "widgets" not in executed.metadata


def test_a_page_has_the_source_of_a_figure_once_and_loads_nothing():
    places = figure.figure_place("padded_batches", {"x": "</script><b>"}, "") * 2
    scripts = figure.figure_scripts(places)
    assert scripts.count("<script") == 1 and "import " not in scripts and places.count("</script>") == 2
    assert figure.figure_scripts("<p>no figure</p>") == ""


@pytest.mark.skipif(not chromium(), reason="no Chromium on this machine")
def test_in_the_book_each_figure_follows_its_sliders_and_computes_what_python_computes(book_page):
    values = {name: moved for name, (_, moved, _, _) in MOVED.items()}
    path = book_page.with_name("moved.html")
    path.write_text(book_page.read_text() + MOVE.format(values=json.dumps(values)))
    dom = opened(path)
    found = json.loads(html.unescape(re.search("<title>(.*?)</title>", dom)[1]))
    for name, (shown, _, moved, computed) in MOVED.items():
        first, words, total = found[name]
        assert first == shown.caption and words == moved.caption, name
        assert total == pytest.approx(computed()), name
    assert dom.count("<svg") == len(MOVED) and "undefined" not in dom and "NaN" not in dom
    assert '<img class="figure"' not in dom, "a picture is left below its figure"


@pytest.mark.skipif(not chromium(), reason="no Chromium on this machine")
def test_where_no_script_runs_the_book_shows_the_pictures(book_page):
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as play, started(play) as found:
        page = found.new_context(java_script_enabled=False).new_page()
        page.goto(book_page.as_uri())
        seen = page.locator("img.figure")
        assert seen.count() == len(MOVED) and all(picture.is_visible() for picture in seen.all())
        assert page.locator("svg").count() == 0


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("which", [0, 2])
def test_the_numbers_in_a_title_are_those_drawn(name, which):
    shown = MOVED[name][which]
    (axes, *_) = shown.picture.axes
    assert axes.get_title() == shown.caption
    assert numbers(axes.get_title()) == DRAWN[name](axes, shown.data)


def numbers(text):
    """The numbers in `text`; "not run" is None."""
    found = re.findall(r"not run|\d[\d,]*(?:\.\d+)?", text)
    return [None if number == "not run" else float(number.replace(",", "")) for number in found]


def bars(axes, color):
    """(left, bottom, width, height) of each bar in this colour."""
    return [bar.get_bbox().bounds for bar in axes.patches if bar.get_facecolor() == to_rgba(color)]


def drawn_pipeline(axes, data):
    steps, loads = bars(axes, "C0"), bars(axes, "C1")
    end = max(left + width for left, _, width, _ in steps)
    busy = sum(width for _, _, width, _ in steps)
    load = sum(width for _, _, width, _ in loads) / len(loads)
    rows = {round(bottom) for _, bottom, _, _ in loads}
    step = busy / len(steps)
    formula = max(load / len(rows), step)
    each = end / len(steps)
    return [len(steps), len(rows), *(round(value, 1) for value in (each, each - step, formula))]


def drawn_padding(axes, data):
    tokens, cells = bars(axes, "#4d4d4d"), bars(axes, "0.85")
    ratio = sum(height * width for _, _, width, height in cells) / sum(height for *_, height in tokens)
    n_batches = sum(left - before > 1.5 for (before, *_), (left, *_) in itertools.pairwise(cells)) + 1
    all_batches = padded_batches.batches_of(data["lengths"], data["batch_size"], data["window"], data["seed"])
    whole = padded_batches.cells_per_token(all_batches, data["lengths"])
    first = [data["window"], data["batch_size"], round(ratio, 2), n_batches]
    return [*first, round(whole, 2), len(all_batches)]


def drawn_timeline(axes, data):
    backward, waits = (sum(width for _, _, width, _ in bars(axes, color)) for color in ("C0", "0.85"))
    ends = [left + width for left, _, width, _ in bars(axes, "C2")]
    assert max(ends) == pytest.approx(backward + waits)
    return [len(ends), round(backward, 1), round(waits, 1)]


def drawn_map(axes, data):
    scores = {(text.get_position()[0], round(text.get_position()[1], 6)): float(text.get_text()) for text in axes.texts}
    (line,) = [line for line in axes.lines if line.get_marker() == "o"]
    squares = [(x, math.floor(y) + 0.1) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]
    return [data["power"], *(scores.get(square) for square in squares)]


DRAWN = {
    "loader_pipeline": drawn_pipeline,
    "padded_batches": drawn_padding,
    "backward_timeline": drawn_timeline,
    "batch_rate_map": drawn_map,
}


@pytest.mark.parametrize("name", MOVED)
def test_a_figure_is_a_widget_a_picture_and_words(name):
    pytest.importorskip("anywidget")
    data, _ = DisplayFormatter().format(MOVED[name][0])
    assert {"text/plain", "image/png", figure.MIME, "application/vnd.jupyter.widget-view+json"} <= data.keys()
    assert data[figure.MIME]["name"] == name and data["text/plain"] == MOVED[name][0].caption


def test_without_the_library_of_widgets_the_picture_is_shown(monkeypatch):
    monkeypatch.setattr(figure, "widget_class", lambda name: None)
    assert MOVED["padded_batches"][0]._repr_mimebundle_().keys() == {"text/plain", "image/png", figure.MIME}


def test_four_workers_take_as_long_for_nine_batches_as_for_twelve():
    """As a DataLoader does: one worker makes three of the nine."""
    of = {n: loader_pipeline.schedule([20.0], 0.0, 4, n)[1] for n in (8, 9, 12)}
    assert of[9] == of[12] == 1.5 * of[8]


def test_a_loader_asks_no_further_ahead_than_prefetch_times_workers():
    spans, _ = loader_pipeline.schedule([1.0], 10.0, 2, 12, prefetch=2)
    received = {span.batch: span.begin for span in spans if span.kind == "compute"}
    loads = {span.batch: span.begin for span in spans if span.kind == "load"}
    assert all(loads[batch] >= received[batch - 4] for batch in range(4, 12))


def test_a_whole_epoch_in_one_window_has_least_padding_and_every_sequence_once():
    ratios = []
    for window in (1, 5, 20):
        batches = padded_batches.batches_of(LENGTHS, 10, window, 0)
        assert sorted(sum(batches, [])) == list(range(len(LENGTHS)))
        ratios.append(padded_batches.cells_per_token(batches, LENGTHS))
    assert ratios[0] > ratios[1] > ratios[2] > 1


def test_small_buckets_hide_messages_until_their_cost_counts():
    def waits(bucket_mb, latency_ms):
        return backward_timeline.schedule(LAYERS, bucket_mb, 20.0, latency_ms)[1]

    assert waits(5, 0.0) < waits(30, 0.0) and waits(5, 8.0) > waits(30, 8.0)


def test_the_first_bucket_of_torch_is_smaller():
    small = [figures.Layer(f"layer {i}", 1.0, 0.6) for i in range(10)]
    messages, _ = backward_timeline.schedule(small, gbit=1.0, latency_ms=0.0, **backward_timeline.TORCH_BUCKETS)
    assert [len(message.names) for message in messages] == [2, 8]
    assert len(backward_timeline.schedule(small, 0.1, 1.0, 0.0, first_mb=1.0)[0]) == 10


def test_a_rule_stays_on_the_map_and_says_where_nothing_was_run():
    points = batch_rate_map.along_rule(*MAP, batch_rate_map.LINEAR, 0.1)
    assert [point.score for point in points] == [0.5, 0.72, None], "four times 0.4 lies above the map"
    assert "not run" in figures.rate_map([1, 2], [0.1, 0.2], [[0.5, 0.4], [None, None]]).caption

"""The figures to play with: what a module computes in a browser, Python computes for its picture."""

import json
import re
import subprocess

import pytest
from browser import FLAGS, chromium
from IPython.core.formatters import DisplayFormatter

from course import figures
from course.figures import backward_timeline, batch_rate_map, figure, loader_pipeline, padded_batches

LENGTHS = [1 + (7 * i * i) % 61 for i in range(200)]
LAYERS = [figures.Layer(f"layer {i}", 2.0 + i, 6.0, 10.0) for i in range(5)]
SCORES = [[0.5, 0.6, 0.7, None], [0.4, 0.6, 0.72, 0.2], [0.2, 0.3, 0.6, 0.65]]
MAP = ([256, 1024, 4096], [0.1, 0.2, 0.4, 0.8], SCORES)
# a figure, values that its sliders are moved to, and what it then computes
MOVED = {
    "loader_pipeline": (
        figures.pipeline([9.0, 12.0, 8.0], 5.0, workers=2),
        {"workers": 4, "batches": 9, "prefetch": 3, "step_ms": 2.5, "start_ms": 40},
        lambda: loader_pipeline.schedule([9.0, 12.0, 8.0], 2.5, 4, 9, 3, 40.0)[1],
    ),
    "padded_batches": (
        figures.padding(LENGTHS),
        {"batch_size": 10, "window": 7, "seed": 3},
        lambda: padded_batches.cells_per_token(padded_batches.batches_of(LENGTHS, 10, 7, 3), LENGTHS),
    ),
    "backward_timeline": (
        figures.step_timeline(LAYERS),
        {"bucket_mb": 10, "gbit": 4, "latency_ms": 1.5},
        lambda: backward_timeline.schedule(LAYERS, 10.0, 4.0, 1.5)[1],
    ),
    "batch_rate_map": (
        figures.rate_map(*MAP),
        {"power": 0.5, "place": 1},
        lambda: sum(point.score or 0 for point in batch_rate_map.along_rule(*MAP, 0.5, 0.2)),
    ),
}
MOVE = """<script type="module">
for (const input of document.querySelectorAll("input")) {{
  const value = {values}[input.dataset.name];
  if (value === undefined) throw new Error(`a slider that the test does not move: ${{input.dataset.name}}`);
  input.value = value;
  input.dispatchEvent(new Event("input"));
}}
document.title = document.getElementById("figure-1").dataset.total;
</script>"""


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.skipif(not chromium(), reason="no Chromium on this machine")
def test_a_module_follows_its_sliders_and_computes_what_python_computes(name, tmp_path):
    shown, values, computed = MOVED[name]
    text = figure.page(shown.name, shown.data, "", 1) + MOVE.format(values=json.dumps(values))
    (tmp_path / "page.html").write_text(f"<!doctype html><meta charset=utf-8><title>failed</title>{text}")
    call = [chromium(), "--headless", *FLAGS.split(), "--dump-dom", (tmp_path / "page.html").as_uri()]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60)
    title = re.search("<title>(.*?)</title>", done.stdout)[1]
    assert float(title) == pytest.approx(computed()), done.stderr
    assert "<rect" in done.stdout and "undefined" not in re.sub("<script.*?</script>", "", done.stdout, flags=re.S)


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


def test_a_rule_stays_on_the_map_and_says_where_nothing_was_run():
    points = batch_rate_map.along_rule(*MAP, batch_rate_map.LINEAR, 0.1)
    assert [point.score for point in points] == [0.5, 0.72, None], "four times 0.4 lies above the map"
    assert "not run" in figures.rate_map([1, 2], [0.1, 0.2], [[0.5, 0.4], [None, None]]).caption

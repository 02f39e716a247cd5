"""What the learner predicted, shown beside what was measured, and not judged on noise."""

from course.learner.predictions import leaders, reveal, reveal_leader


def test_a_prediction_stands_in_brackets_and_none_is_silent():
    assert reveal(None) == "" and reveal(0.25, "{:.0%}") == "   (you said 25%)"


def test_names_within_the_margin_of_the_best_lead_together():
    seconds = {"a": 1.2, "b": 1.0, "c": 1.05}
    assert leaders(seconds, 0.1) == ["b", "c"] and leaders(seconds, 0) == ["b"]
    assert leaders(seconds, 0.1, most=True) == ["a"]
    never = float("inf")
    assert leaders({"a": never, "b": never}, 0.1) == ["a"] and leaders({"a": never, "b": 1.0}, 0.1) == ["b"]


def test_a_prediction_is_not_held_against_a_close_call():
    assert reveal_leader("a", ["b"]) == "b   (you said a)"
    assert reveal_leader("a", ["b", "c"]) == "b or c: too close to call   (you said a)"

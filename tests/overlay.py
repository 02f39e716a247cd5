"""What could be forged: facts that everybody knows, laid over those of a wrong answer.

    python tests/overlay.py [EXERCISE ...]        prints the known mistakes that would score in full

A fact that the reference has at every seed can be read before a batch is graded. Code that changes what a check
recorded can put it in the place of its own without computing anything. A known mistake is safe from that if it is wrong
in a fact whose value changes with the seed, or lacks one.
"""

import functools
import sys

import torch

from course.engine.compare import differs
from course.engine.outcome import Comparison, Outcome

CPU = torch.device("cpu")
SEEDS = (0, 4321, 77777)  # the visible check, a hidden one, and one more
MOST = 20  # known mistakes of all exercises that an overlay lets score in full

# exercise -> why its known mistakes may score in full
ALLOWED = {
    "ddp_facts": "a quiz without inputs: to know its answers is to have solved it, from whomever",
}


@functools.cache
def seed_independent(exercise, device=CPU):
    """{fact: value} of the facts of the reference that are the same at all of SEEDS."""
    first, *others = [exercise.at(device, seed).expected().facts for seed in SEEDS]
    constant = {}
    for fact, value in first.items():
        if all(fact in facts and not differs(facts[fact], value) for facts in others):
            constant[fact] = value
    return constant


def scores_in_full(outcome, exercise, seed, device=CPU):
    """Whether an Outcome would be right at `seed` with the seed-independent facts laid over its own."""
    laid = Outcome(outcome.facts | seed_independent(exercise, device))
    return Comparison(laid, exercise.at(device, seed).expected()).is_right()


def forged(exercise, seed=SEEDS[1]):
    """The names of the known mistakes of `exercise` that the overlay lets score in full at `seed`."""
    judge = exercise.at(CPU, seed)
    return [known.name for known in exercise.mistakes() if scores_in_full(judge.run_once(known.answer), exercise, seed)]


def main(names):
    """Print what can be forged, exercise by exercise."""
    from exercises import EXERCISES

    n_mistakes, n_forged = 0, 0
    for exercise in EXERCISES:
        if names and exercise.name not in names:
            continue
        found = forged(exercise)
        n_mistakes += len(exercise.mistakes())
        n_forged += len(found)
        if found:
            print(f"{exercise.unit} {exercise.name}: {', '.join(found)}")
    print(f"{n_forged} of {n_mistakes} known mistakes")


if __name__ == "__main__":
    main(set(sys.argv[1:]))

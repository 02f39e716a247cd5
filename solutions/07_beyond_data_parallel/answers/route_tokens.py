"""Known mistakes of exercise route_tokens, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "nothing_is_dropped": (
        "A token beyond the capacity gets a slot of the next expert, which then has two. Drop it: -1.",
        (".where(place < capacity, -1)", ""),
    ),
    "one_too_many": (
        "An expert takes one token more than it has places for. Places are 0 to capacity - 1.",
        ("place < capacity", "place <= capacity"),
    ),
    "places_from_one": (
        "Places are counted from 1, so the first one stays empty. Count the tokens before this one.",
        (".sum(1) - 1", ".sum(1)"),
    ),
    "places_to_capacity": (
        "Places are counted from 1 to capacity, so the last one is a slot of the next expert. Count from 0.",
        (".sum(1) - 1", ".sum(1)"),
        ("place < capacity", "place <= capacity"),
    ),
    "experts_interleaved": (
        "Place p of expert e is p · experts + e here, so an expert has scattered slots. It is e · capacity + p.",
        ("expert * capacity + place", "place * scores.shape[1] + expert"),
    ),
    "packed_by_number_of_experts": (
        "The slot of an expert's first place is wrong. Each expert has `capacity` places: expert · capacity + place.",
        ("expert * capacity + place", "expert * scores.shape[1] + place"),
    ),
    "place_alone": (
        "All experts share the same slots. Add expert · capacity.",
        ("expert * capacity + place", "place"),
    ),
    "clipped": (
        "Tokens beyond the capacity share the last place, and overwrite each other. Drop them: -1.",
        (
            "slot = expert * capacity + place",
            "slot = expert * capacity + place.clamp(max=capacity - 1)",
        ),
        (".where(place < capacity, -1)", ""),
    ),
    "least_liked": (
        "Tokens go to the expert with the lowest score. Take the highest one.",
        ("scores.argmax(1)", "scores.argmin(1)"),
    ),
    "place_in_the_batch": (
        "The place is the token's number among all tokens. Count those before it that chose the same expert.",
        (
            "(chosen.cumsum(0) * chosen).sum(1) - 1",
            "torch.arange(len(expert), device=expert.device)",
        ),
    ),
}


@mistake("Later tokens push out earlier ones. Places are given in the order of the tokens.")
def last_come_first_served(scores, capacity):
    expert = scores.argmax(1)
    slots = torch.full_like(expert, -1)
    for chosen in range(scores.shape[1]):
        who = (expert == chosen).nonzero().flatten()[-capacity:]
        slots[who] = chosen * capacity + torch.arange(len(who), device=who.device)
    return slots


@mistake("A token whose expert is full goes to its second choice. The task drops it: -1.")
def second_choice(scores, capacity):
    taken = [0] * scores.shape[1]
    slots = []
    for row in scores.argsort(1, descending=True).tolist():
        slot = -1
        for expert in row[:2]:
            if taken[expert] < capacity:
                slot = expert * capacity + taken[expert]
                taken[expert] += 1
                break
        slots.append(slot)
    return torch.tensor(slots, device=scores.device)


@mistake(
    "A token whose expert is full goes to the next best one that is free. The task drops it: -1."
)
def any_free_expert(scores, capacity):
    taken = [0] * scores.shape[1]
    slots = []
    for row in scores.argsort(1, descending=True).tolist():
        free = [expert for expert in row if taken[expert] < capacity]
        slots.append(free[0] * capacity + taken[free[0]] if free else -1)
        if free:
            taken[free[0]] += 1
    return torch.tensor(slots, device=scores.device)


@mistake(
    "The tokens are taken by their highest score. The places are filled in the order of the tokens."
)
def in_order_of_scores(scores, capacity):
    best, expert = scores.max(1)
    slots = torch.full_like(expert, -1)
    taken = [0] * scores.shape[1]
    for token in best.argsort(descending=True).tolist():
        chosen = int(expert[token])
        if taken[chosen] < capacity:
            slots[token] = chosen * capacity + taken[chosen]
            taken[chosen] += 1
    return slots


@mistake(
    "The tokens with the highest scores get the places. The task gives them in the order of the tokens."
)
def best_scores_first(scores, capacity):
    best, expert = scores.max(1)
    slots = torch.full_like(expert, -1)
    for chosen in range(scores.shape[1]):
        who = (expert == chosen).nonzero().flatten()
        who = who[best[who].argsort(descending=True)][:capacity].sort().values
        slots[who] = chosen * capacity + torch.arange(len(who), device=who.device)
    return slots


@alternative
def one_after_the_other(scores, capacity):
    taken = [0] * scores.shape[1]
    slots = []
    for expert in scores.argmax(1).tolist():
        if taken[expert] < capacity:
            slots.append(expert * capacity + taken[expert])
        else:
            slots.append(-1)
        taken[expert] += 1
    return torch.tensor(slots, device=scores.device)


@alternative
def expert_by_expert(scores, capacity):
    favourite = scores.max(dim=1).indices
    slots = torch.full(favourite.shape, -1, dtype=torch.int64, device=scores.device)
    for expert in range(scores.size(1)):
        first = torch.nonzero(favourite == expert)[:capacity, 0]
        slots[first] = torch.arange(
            expert * capacity, expert * capacity + len(first), device=scores.device
        )
    return slots

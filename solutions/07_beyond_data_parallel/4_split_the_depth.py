# %% [markdown]
# # Beyond data parallel, part 4: Split the depth
#
# **Four devices each keep a quarter of the layers. How do you keep all four busy, and what does it cost in memory?**
#
# You write two schedules of a pipeline and look at their pictures.
#
# **You will be able to**
#
# - draw the GPipe and the 1F1B schedule, and compute the bubble of both;
# - say how many micro-batches each rank holds under both;
# - run any schedule on ranks, with the gradients of the whole model (extra).
#
# **Minutes** 20 core · 37 in all
#
# **Needs** nothing

# %% locked="setup"
import itertools
from fractions import Fraction

import course
from course.checks import beyond_data_parallel as check
from course.parallel.distributed import run_ranks
from course.parallel.pipeline import ONE_SLOT, bubble, drawing, gpipe_order, timetable
from course.plots import beyond_data_parallel as plots
from course.training import split_depth
from course.training.small_gpt import random_tokens, small_gpt

print(course.machine())

# %% [markdown]
# ## How long does a rank wait for the others?
#
# With *pipeline parallel*, rank 0 keeps the first layers, rank 1 the next ones, and so on. A rank sends its output to
# the next rank, and later the gradient of its input to the rank before.
#
# With one whole batch, only one rank would work at a time. So the batch is cut into *micro-batches*: while rank 1
# computes the first one, rank 0 computes the second.
#
# A *pass* is the forward or the backward of one micro-batch on one rank. Here, each pass takes one slot of time. It can
# begin when the pass that it needs is over:
#
# | pass | needs |
# |---|---|
# | forward of m on rank r | forward of m on rank r - 1 |
# | backward of m on the last rank | its own forward of m |
# | backward of m on rank r | backward of m on rank r + 1 |
#
# A *schedule* is a list of passes `(rank, time, kind, micro_batch)`, where `kind` is `"F"` or `"B"` and `time` is the
# slot. `drawing` shows it. In this example with three ranks, rank 1 begins both of its passes too early:

# %%
too_early = [
    (0, 0, "F", 0),
    (1, 0, "F", 0),
    (2, 1, "F", 0),
    (2, 2, "B", 0),
    (1, 2, "B", 0),
    (0, 4, "B", 0),
]
print(drawing(too_early))

# %% [markdown]
# The *bubble* is the share of all ranks' time in which they wait.
#
# **Predict**: GPipe does all forward passes, then all backward passes. Four ranks have 8 micro-batches. What share of
# the time do they wait? Perhaps 3/4, because a rank waits for three others. Perhaps less, because ranks compute
# different micro-batches at the same time.

# %%
predicted_bubble = None  # a number from 0 to 1

# %% [markdown]
# ### Exercise 1 · The GPipe schedule
#
# The forward pass of micro-batch m runs on rank r in slot r + m. The last rank begins backward as soon as it is free.
# If your schedule is not right yet, the check draws it next to the right one.
#
# ```python
# >>> print(drawing(gpipe(ranks=2, micro_batches=2)))
# rank 0 |F0 F1 .  .  B0 B1
# rank 1 |.  F0 F1 B0 B1 .
# ```
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 5 · **Lines** 7
#
# **Must**
#
# - return a list of (rank, time, kind, micro-batch), in any order
# - begin each pass in the earliest possible slot, and backward passes after all forward passes of their rank
# - send micro-batches back in the order 0, 1, ...
#
# **Source** Huang et al. 2019, "GPipe", arXiv:1811.06965, section 2.3.
#
# <details><summary>Hint 1</summary>
#
# In which slot does the last rank do its last forward pass? How much later than the last rank does rank r get a
# gradient?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The last rank is free in slot `micro_batches + ranks - 1`. Rank r begins backward `ranks - 1 - r` slots later, and
# micro-batch m comes m slots after that.
#
# </details>


# %% solution="gpipe"
def gpipe(ranks, micro_batches):
    """List of (rank, time, kind, micro_batch), a tuple per pass; kind is "F" or "B", time a slot from 0."""
    ### BEGIN SOLUTION
    schedule = []
    turn = micro_batches + ranks - 1  # the slot in which the last rank begins backward
    for rank in range(ranks):
        for m in range(micro_batches):
            schedule.append((rank, rank + m, "F", m))
            schedule.append((rank, turn + (ranks - 1 - rank) + m, "B", m))
    return schedule
    ### END SOLUTION


# %% test="gpipe-visible" points=1
check.gpipe(gpipe)

# %% test="gpipe-hidden" points=2
### BEGIN HIDDEN TESTS
check.gpipe(gpipe, seed=1811)
### END HIDDEN TESTS

# %% tags=["experiment"]
gpipe_now = course.solved(check.gpipe)
schedule = gpipe_now(4, 8)
share = float(bubble(schedule))
print(course.score("07/4", "bubble of GPipe, 4 ranks and 8 micro-batches", predicted_bubble, share))

cases = list(itertools.product(range(1, 9), range(1, 33)))  # (ranks, micro-batches)
is_exact = []
for ranks, micro_batches in cases:
    expected = Fraction(ranks - 1, micro_batches + ranks - 1)
    is_exact.append(bubble(gpipe_now(ranks, micro_batches)) == expected)
course.claim(
    "the bubble of GPipe is exactly (P - 1) / (M + P - 1) with up to 8 ranks and 32 micro-batches",
    all(is_exact),
    f"{len(cases)} schedules",
)
print(drawing(schedule))

# %% [markdown]
# **Shown** by the picture: a rank waits 2 (P - 1) slots in a batch, for P - 1 forward and P - 1 backward passes. More
# micro-batches do not change this number, so the bubble shrinks. (Part 1 divided these slots by the busy time instead:
# (P - 1) / M.)
#
# **Takeaway** Under GPipe, a rank waits for P - 1 forward and P - 1 backward passes per batch. So take many more
# micro-batches than ranks.

# %% [markdown]
# ## How many micro-batches does a rank hold? · extra
#
# A rank *holds* a micro-batch from its forward pass to the end of its backward pass: it keeps the activations. So the
# schedule decides how many activations a rank keeps.
#
# ### Exercise 2 · How many micro-batches live
#
# Go through a schedule, and count how many micro-batches each rank holds.
#
# ```python
# >>> most_live([(0, 0, "F", 0), (0, 2, "B", 0), (0, 1, "F", 1), (0, 3, "B", 1)])
# [2]
# ```
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 3 · **Lines** 6
#
# **Must** return, per rank, the most micro-batches whose forward pass has begun and whose backward pass is not over.
#
# **You may assume** a complete schedule, listed in any order.
#
# **Source** Narayanan et al. 2021, section 2.2.
#
# <details><summary>Hint 1</summary>
#
# When does the number of a rank go up, and when does it go down?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `sorted(schedule)` is a new list, by rank and then by time. Go through it, add 1 to the rank's number or subtract 1,
# and keep the largest.
#
# </details>


# %% solution="most_live"
def most_live(schedule):
    """List with a number per rank: the most micro-batches that it holds at a time.

    Args:
        schedule: list of (rank, time, kind, micro_batch).
    """
    ### BEGIN SOLUTION
    ranks = 1 + max(each[0] for each in schedule)
    live = [0] * ranks
    most = list(live)
    for rank, _, kind, _ in sorted(schedule):  # by rank, then by time
        live[rank] += 1 if kind == "F" else -1
        most[rank] = max(most[rank], live[rank])
    return most
    ### END SOLUTION


# %% test="most_live-visible" points=1
check.most_live(most_live)

# %% test="most_live-hidden" points=1
### BEGIN HIDDEN TESTS
check.most_live(most_live, seed=2241)
### END HIDDEN TESTS

# %% [markdown]
# ## How can a rank hold fewer micro-batches?
#
# Many micro-batches make the bubble small, but under GPipe, each rank *holds* all of them: it keeps their activations
# until backward begins. *1F1B* (one forward, one backward) sends each micro-batch back as early as it can.
#
# **Predict**: four ranks have 16 micro-batches, and under GPipe rank 0 holds all of them. By what factor does 1F1B cut
# this number?

# %%
predicted_held = None  # times

# %% [markdown]
# ### Exercise 3 · The 1F1B schedule
#
# Return the *order* of a rank's passes, without times. The rank waits until it has what the next pass needs. Of P
# ranks, rank r begins with P - r forward passes. Then it alternates: one backward, one forward. The remaining backward
# passes follow.
#
# ```python
# >>> one_f_one_b(1, ranks=2, micro_batches=2)
# [('F', 0), ('B', 0), ('F', 1), ('B', 1)]
# >>> print(drawing(timetable([one_f_one_b(0, 2, 3), one_f_one_b(1, 2, 3)])))
# rank 0 |F0 F1 .  B0 F2 B1 .  B2
# rank 1 |.  F0 B0 F1 B1 F2 B2 .
# ```
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 5 · **Lines** 7
#
# **Must**
#
# - return a list of (kind, micro-batch), with micro-batches forward and backward in the order 0, 1, ...
# - begin with all micro-batches if there are fewer than P - r.
#
# **Source** Narayanan et al. 2021, arXiv:2104.04473, section 2.2 (there PipeDream-Flush).
#
# <details><summary>Hint 1</summary>
#
# How many forward passes come before backward pass m? Which forward pass comes after it, and is there always one?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `first = min(ranks - rank, micro_batches)` forward passes. Then for each m: `("B", m)`, and `("F", first + m)` if
# `first + m < micro_batches`.
#
# </details>


# %% solution="one_f_one_b"
def one_f_one_b(rank, ranks, micro_batches):
    """The passes of `rank` in their order: list of (kind, micro_batch), kind "F" or "B"."""
    ### BEGIN SOLUTION
    first = min(ranks - rank, micro_batches)
    order = [("F", m) for m in range(first)]
    for m in range(micro_batches):
        order.append(("B", m))
        if first + m < micro_batches:
            order.append(("F", first + m))
    return order
    ### END SOLUTION


# %% test="one_f_one_b-visible" points=1
check.one_f_one_b(one_f_one_b)

# %% test="one_f_one_b-hidden" points=2
### BEGIN HIDDEN TESTS
check.one_f_one_b(one_f_one_b, seed=2104)
### END HIDDEN TESTS

# %% tags=["experiment"]
order_of = {"GPipe": gpipe_order, "1F1B": course.solved(check.one_f_one_b)}
most_live_now = course.solved(check.most_live)


def orders(name, ranks, micro_batches):
    """The order of each rank."""
    return [order_of[name](rank, ranks, micro_batches) for rank in range(ranks)]


held = {}
for name in order_of:
    schedule = timetable(orders(name, 4, 16))
    held[name] = most_live_now(schedule)
ratio = held["GPipe"][0] / held["1F1B"][0]

print(f"micro-batches that the ranks hold, of 16: {held}")
print(
    course.score("07/4", "micro-batches that rank 0 holds, GPipe over 1F1B", predicted_held, ratio)
)

# %% tags=["experiment"]
holds_as_claimed = []
same_bubble = []
for ranks, micro_batches in cases:
    by_gpipe = timetable(orders("GPipe", ranks, micro_batches))
    by_1f1b = timetable(orders("1F1B", ranks, micro_batches))
    at_most = [min(ranks - rank, micro_batches) for rank in range(ranks)]
    holds_as_claimed.append(most_live_now(by_gpipe) == [micro_batches] * ranks)
    holds_as_claimed.append(most_live_now(by_1f1b) == at_most)
    same_bubble.append(bubble(by_1f1b) == bubble(by_gpipe))

course.claim(
    "rank r of P holds all M micro-batches under GPipe, and min(P - r, M) under 1F1B",
    all(holds_as_claimed),
    f"{len(cases)} schedules",
)
course.claim("1F1B has exactly the bubble of GPipe", all(same_bubble), f"{len(cases)} schedules")

# %% tags=["experiment"]
schedules = {name: timetable(orders(name, 4, 8)) for name in order_of}
of_rank_0 = {name: most_live_now(schedules[name])[0] for name in order_of}
plots.pipeline(
    schedules,
    ONE_SLOT,
    f"Both wait equally long. Rank 0 holds {of_rank_0['GPipe']} and {of_rank_0['1F1B']} micro-batches",
)

# %% [markdown]
# **Shown**: 1F1B does not shorten the waiting, but ranks hold fewer micro-batches. Rank 0 holds `min(P, M)`, as in part
# 1.
#
# <details><summary>Do other schedules wait less?</summary>
#
# **Known**: yes. *Interleaved* 1F1B gives each rank several short pieces of the model (Narayanan et al. 2021). *Zero
# bubble* cuts the backward pass in two (Qi et al. 2023, arXiv:2401.10241).
#
# </details>
#
# **Takeaway** 1F1B holds at most P micro-batches where GPipe holds all M. Both have the same bubble.

# %% [markdown]
# ## Does a pipeline compute the right gradients? · extra
#
# A schedule only says when to compute. To train with it, each rank must also exchange tensors with its neighbours.
#
# ### Exercise 4 · Run an order
#
# Write what every rank does. `wire` connects it to its neighbours:
#
# | call | does |
# |---|---|
# | `wire.receive("F", m)` | waits for the input of the layers, and returns it |
# | `wire.send("F", m, y)` | starts to send their output |
# | `wire.receive("B", m)` | waits for the gradient of the output, and returns it |
# | `wire.send("B", m, grad)` | starts to send the gradient of the input |
#
# Received tensors have no graph. The first and the last rank need no special case. On the first rank, `wire` runs the
# embedding, forward and backward. On the last rank, `receive("B", m)` computes the loss of what you sent, and returns
# the gradient of the *mean* over all micro-batches.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 5 · **Lines** 10
#
# **Must**
#
# - run the passes in the given order: receive, compute, send
# - add up the gradients of the layers' parameters in their `.grad`
# - run the layers once per micro-batch, and keep nothing of a micro-batch after its backward pass.
#
# **Source** Huang et al. 2019, section 2.3.
#
# <details><summary>Hint 1</summary>
#
# Backward needs two tensors of its forward pass. Which of them gets the gradient that arrived, and which one has the
# gradient that must be sent?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Forward: `x = received.requires_grad_()`, `y = layers(x)`, and keep both in a dict by micro-batch. Backward:
# `x, y = kept.pop(m)`, then `y.backward(received)`, which writes `x.grad`.
#
# </details>


# %% solution="run_order"
def run_order(order, layers, wire):
    """Run the passes of one rank, so that its layers get their gradients.

    Args:
        order: list of (kind, micro_batch), kind "F" or "B".
        layers: module of one input, the rank's part of the model.
        wire: has `receive(kind, micro_batch)` and `send(kind, micro_batch, tensor)`.
    """
    ### BEGIN SOLUTION
    kept = {}
    for kind, m in order:
        received = wire.receive(kind, m)
        if kind == "F":
            x = received.requires_grad_()
            y = layers(x)
            kept[m] = x, y
            wire.send("F", m, y)
        else:
            x, y = kept.pop(m)
            y.backward(received)
            wire.send("B", m, x.grad)
    ### END SOLUTION


# %% test="run_order-visible" points=2
check.run_order(run_order)

# %% test="run_order-hidden" points=2
### BEGIN HIDDEN TESTS
check.run_order(run_order, seed=3104)
### END HIDDEN TESTS

# %% [markdown]
# Four virtual ranks compute the gradients of a small GPT with 8 blocks, first with a single micro-batch. Hooks count
# what autograd saves for the blocks. On the virtual clock of a rank, a forward pass takes one second, and a backward
# pass takes two. Messages take no time.

# %% tags=["experiment"]
run_order_now = course.solved(check.run_order)
SECONDS = {"F": 1, "B": 2}  # of a pass
model = small_gpt()
tokens = random_tokens(8)
whole = split_depth.whole_gradients(model, tokens)
alone = split_depth.on_virtual_ranks(
    run_order_now, orders("GPipe", 4, 1), model, tokens[:1], SECONDS
)
bytes_of_one = alone.peak_bytes[0]  # of one micro-batch

passes = {}
differences = {}
saved_as_held = {}
for name in order_of:
    run = split_depth.on_virtual_ranks(run_order_now, orders(name, 4, 8), model, tokens, SECONDS)
    passes[name] = run.passes
    differences[name] = split_depth.largest_difference(run.gradients, whole)
    saved_as_held[name] = run.peak_bytes == [bytes_of_one * n for n in most_live_now(run.passes)]
    megabytes = [round(n_bytes / 1e6, 1) for n_bytes in run.peak_bytes]
    print(
        f"{name}: gradients differ from the whole model's by {differences[name]:.1e}; "
        f"MB saved per rank {megabytes}"
    )

# %% tags=["experiment"]
course.claim(
    "on four virtual ranks GPipe and 1F1B give the gradients of the whole model to 1e-6",
    round(max(differences.values()), 6) == 0,
    f"{max(differences.values()):.0e}",
)
course.claim(
    "a pipeline rank saves exactly the bytes of one micro-batch, times those that it holds",
    all(saved_as_held.values()),
)

# %% [markdown]
# **Shown**: both schedules give the gradients of the whole model. A rank saves the bytes of one micro-batch, times
# the micro-batches that it holds.
#
# **Takeaway** A pipeline computes the gradients that one device computes, micro-batch by micro-batch.

# %% [markdown]
# ## Does a longer backward pass make the bubble larger? · extra
#
# In the pictures, all passes took one slot. But a backward pass has about twice the FLOPs of a forward pass, because
# each product has two gradients. So on the clock of the last section, it took twice as long.
#
# **Predict**: four ranks have 8 micro-batches and 1F1B. What is the bubble now? It was 3/11 when all passes took one
# slot.

# %%
predicted_long = None  # a number from 0 to 1

# %% tags=["experiment"]
shares = {name: bubble(passes[name], SECONDS) for name in order_of}
print(
    course.score(
        "07/4",
        "bubble of 1F1B where backward takes twice as long",
        predicted_long,
        float(shares["1F1B"]),
    )
)
plots.pipeline(
    passes,
    SECONDS,
    f"Long backward passes: GPipe waits {shares['GPipe']} of the time, 1F1B {shares['1F1B']}",
)

# %% [markdown]
# **Shown** by the clocks: a rank waits for as many forward as backward passes, P - 1 each, and computes M of each. So
# waiting and work grow by the same factor.
#
# If only one rank is slow, the others wait for it, because every micro-batch passes through all ranks.
#
# **Takeaway** If all ranks take equally long, a long backward pass does not change the bubble. So cut the model into
# equally long parts.

# %% [markdown]
# ## Does torch do the same? · extra
#
# In torch, `torch.distributed.pipelining` has both schedules. Each rank wraps its layers in a `PipelineStage` and calls
# `Schedule1F1B(stage, n_microbatches, loss_fn=...).step(...)`. Two processes run both schedules with 4 micro-batches,
# with torch and with your `run_order`:

# %% tags=["experiment"]
orders_of = {"ScheduleGPipe": orders("GPipe", 2, 4), "Schedule1F1B": orders("1F1B", 2, 4)}
of_ranks = run_ranks(
    split_depth.compared_with_torch,
    2,
    run_order_now,
    orders_of,
    model,
    tokens,
    backend="gloo",
    timeout=300,
)

largest = 0.0
for rank, of_rank in enumerate(of_ranks):
    for name, distances in of_rank.items():
        print(
            f"rank {rank}, {name}: distance from the whole model's gradients, "
            f"yours {distances['yours']:.1e}, torch's {distances['torch']:.1e}"
        )
        largest = max(largest, *distances.values())
course.claim(
    "run_order and torch.distributed.pipelining give the whole model's gradients to 1e-6 on two ranks",
    round(largest, 6) == 0,
    f"{largest:.0e}",
)

# %% [markdown]
# **Takeaway** Torch needs your cut of the layers and the name of a schedule. It then does the work of your `run_order`.

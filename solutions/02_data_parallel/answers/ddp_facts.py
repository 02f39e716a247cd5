"""Known mistakes of exercise ddp_facts, and right answers in other styles."""

from course.checks.engine import alternative, mistake

FACTS = {letter: letter in "ACDEIKM" for letter in "ABCDEFGHIJKLMN"}


@mistake(
    "ddp_facts",
    "A is true. DDP's constructor compares the shapes of the parameters and then sends those of rank 0, and the "
    "buffers, to all. Without it the means of the gradients would be taken at different weights.",
)
def every_rank_starts_elsewhere():
    return FACTS | {"A": False}


@mistake(
    "ddp_facts",
    "B is false: that is DataParallel. DDP computes on what its rank passes to it; the sampler gives each rank a "
    "batch of its own. Read again what the sampler of this unit is for.",
)
def divides_the_batch():
    return FACTS | {"B": True}


@mistake(
    "ddp_facts",
    "C is true. The exchange of a gradient begins as soon as backward has made it, and is over when backward returns. "
    "The optimizer finds the mean in p.grad and works alone.",
)
def step_synchronises():
    return FACTS | {"C": False}


@mistake(
    "ddp_facts",
    "D is true. DDP divides the sum by the number of ranks. Whoever divides once more takes steps that are too small; "
    "and with shards of different sizes it is a mean of means.",
)
def sum_of_shards():
    return FACTS | {"D": False}


@mistake(
    "ddp_facts",
    "E is true. All optimizers begin alike and get the same gradients, so they do the same. What is sent in a step are "
    "gradients and nothing else.",
)
def states_are_sent():
    return FACTS | {"E": False}


@mistake(
    "ddp_facts",
    "F is false. The loss is that of the rank's own samples; only gradients are averaged. For the loss of all ranks "
    "use a collective of your own, with weights.",
)
def loss_of_all():
    return FACTS | {"F": True}


@mistake(
    "ddp_facts",
    "G is false. Before a forward pass DDP sends the buffers of rank 0 to the others; no mean is taken. Read again the "
    "section on what normalisation sees.",
)
def statistics_are_averaged():
    return FACTS | {"G": True}


@mistake(
    "ddp_facts",
    "H is false. Operations are matched by their order on each rank, and an all-reduce ends nowhere before all ranks "
    "have come to it. DDP synchronises in backward; a barrier before the batch is only one more wait.",
)
def barrier_before_the_batch():
    return FACTS | {"H": True}


@mistake(
    "ddp_facts",
    "I is true. A download is not an operation between ranks, so nothing else makes the others wait for it. This is "
    "what a barrier is good for.",
)
def no_barrier_ever():
    return FACTS | {"I": False}


@mistake(
    "ddp_facts",
    "J is false. All ranks draw the same permutation, from seed + epoch, and take different places of it. Read again "
    "the section on who gets which sample.",
)
def ranks_shuffle_alone():
    return FACTS | {"J": True}


@mistake(
    "ddp_facts",
    "K is true. The order is filled up from its start until all ranks have equally many. For an accuracy take shards "
    "without padding, and put them together with their weights.",
)
def padding_is_harmless():
    return FACTS | {"K": False}


@mistake(
    "ddp_facts",
    "L is false. The others wait in their backward pass for the one that has stopped, until a time limit ends them. "
    "Make all shards equally long, or use ddp.join().",
)
def goes_on_without_it():
    return FACTS | {"L": True}


@mistake(
    "ddp_facts",
    "M is true. RANK counts over all machines, LOCAL_RANK on each, and WORLD_SIZE is the number of all processes. Read "
    "again the table of two machines.",
)
def rank_is_local():
    return FACTS | {"M": False}


@mistake(
    "ddp_facts",
    "N is false. At that address the ranks meet at the start and learn each other's addresses. The gradients go "
    "between the ranks directly, and every rank adds up a part of them.",
)
def gradients_go_to_the_master():
    return FACTS | {"N": True}


@mistake("ddp_facts", "The verdicts are words. True and False are values of their own in Python, without quotes.")
def facts_in_words():
    return {letter: str(verdict) for letter, verdict in FACTS.items()}


@alternative("ddp_facts")
def keywords():
    return dict(N=False, M=True, L=False, K=True, J=False, I=True, H=False, G=False, F=False, E=True, D=True, C=True,
                B=False, A=True)  # fmt: skip


@alternative("ddp_facts")
def one_by_one():
    verdicts = dict.fromkeys("ABCDEFGHIJKLMN", True)
    for letter in "BFGHJLN":
        verdicts[letter] = False
    return verdicts

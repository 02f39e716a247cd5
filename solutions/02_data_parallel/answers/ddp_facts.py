"""Known mistakes of exercise ddp_facts, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "every_rank_starts_elsewhere": (
        "A is true. DDP's constructor compares the shapes of the parameters and then sends those of rank 0, and the "
        "buffers, to all. Without it the means of the gradients would be taken at different weights.",
        ('"ACDEIKM"', '"CDEIKM"'),
    ),
    "divides_the_batch": (
        "B is false: that is DataParallel. DDP computes on what its rank passes to it; the sampler gives each rank "
        "its own batch. Read again what the sampler of this unit is for.",
        ('"ACDEIKM"', '"ABCDEIKM"'),
    ),
    "step_synchronises": (
        "C is true. The exchange of a gradient begins as soon as backward has made it, and is over when backward "
        "returns. The optimizer finds the mean in p.grad and works alone.",
        ('"ACDEIKM"', '"ADEIKM"'),
    ),
    "sum_of_shards": (
        "D is true. DDP divides the sum by the number of ranks. If you divide once more, your steps are too small; "
        "and with shards of different sizes it is a mean of means.",
        ('"ACDEIKM"', '"ACEIKM"'),
    ),
    "states_are_sent": (
        "E is true. All optimizers begin alike and get the same gradients, so they do the same. What is sent in a "
        "step are gradients and nothing else.",
        ('"ACDEIKM"', '"ACDIKM"'),
    ),
    "loss_of_all": (
        "F is false. The loss is that of the rank's own samples; only gradients are averaged. For the loss of all "
        "ranks call a collective yourself, with weights.",
        ('"ACDEIKM"', '"ACDEFIKM"'),
    ),
    "statistics_are_averaged": (
        "G is false. Before a forward pass DDP sends the buffers of rank 0 to the others; no mean is taken. Read "
        "again the section on what normalisation sees.",
        ('"ACDEIKM"', '"ACDEGIKM"'),
    ),
    "barrier_before_the_batch": (
        "H is false. Operations are matched by their order on each rank, and an all-reduce ends nowhere before all "
        "ranks have come to it. DDP synchronises in backward; a barrier before the batch is only one more wait.",
        ('"ACDEIKM"', '"ACDEHIKM"'),
    ),
    "no_barrier_ever": (
        "I is true. A download is not an operation between ranks, so nothing else makes the others wait for it. This "
        "is what a barrier is good for.",
        ('"ACDEIKM"', '"ACDEKM"'),
    ),
    "ranks_shuffle_alone": (
        "J is false. All ranks draw the same permutation, from seed + epoch, and take different places of it. Read "
        "again the section on who gets which sample.",
        ('"ACDEIKM"', '"ACDEIJKM"'),
    ),
    "padding_is_harmless": (
        "K is true. The order is filled up from its start until all ranks have equally many. For an accuracy take "
        "shards without padding, and put them together with their weights.",
        ('"ACDEIKM"', '"ACDEIM"'),
    ),
    "goes_on_without_it": (
        "L is false. The others wait in their backward pass for the one that has stopped, until a time limit ends "
        "them. Make all shards equally long, or use ddp.join().",
        ('"ACDEIKM"', '"ACDEIKLM"'),
    ),
    "rank_is_local": (
        "M is true. RANK counts over all machines, LOCAL_RANK on each, and WORLD_SIZE is the number of all processes. "
        "Read again the table of two machines.",
        ('"ACDEIKM"', '"ACDEIK"'),
    ),
    "gradients_go_to_the_master": (
        "N is false. At that address the ranks meet at the start and learn each other's addresses. The gradients go "
        "between the ranks directly, and every rank adds up a part of them.",
        ('"ACDEIKM"', '"ACDEIKMN"'),
    ),
    "facts_in_words": (
        "The verdicts are words. True and False are Python values, without quotes.",
        ('letter in "ACDEIKM"', 'str(letter in "ACDEIKM")'),
    ),
}


@alternative
def keywords():
    return dict(A=True, C=True, D=True, E=True, I=True, K=True, M=True) | dict.fromkeys("BFGHJLN", False)


@alternative
def one_by_one():
    verdicts = dict.fromkeys("ABCDEFGHIJKLMN", True)
    for letter in "BFGHJLN":
        verdicts[letter] = False
    return verdicts

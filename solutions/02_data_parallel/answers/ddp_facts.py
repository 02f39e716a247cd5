"""Known mistakes of exercise ddp_facts, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "every_rank_starts_elsewhere": (
        "A is true. Otherwise the ranks would average gradients that they took at different weights.",
        ('"ACDEIKM"', '"CDEIKM"'),
    ),
    "divides_the_batch": (
        "B is false: that is DataParallel. DDP computes on what its rank passes to it. A sampler divides the "
        "data.",
        ('"ACDEIKM"', '"ABCDEIKM"'),
    ),
    "step_synchronises": (
        "C is true. DDP starts to send a bucket while backward runs, and the optimizer finds the mean in p.grad.",
        ('"ACDEIKM"', '"ADEIKM"'),
    ),
    "sum_of_shards": (
        "D is true. DDP divides the sum by the number of ranks, so do not divide once more.",
        ('"ACDEIKM"', '"ACEIKM"'),
    ),
    "states_are_sent": (
        "E is true. Optimizers that begin alike and get equal gradients take equal steps.",
        ('"ACDEIKM"', '"ACDIKM"'),
    ),
    "loss_of_all": (
        "F is false. Only gradients are averaged. For the loss of all ranks, call a collective yourself.",
        ('"ACDEIKM"', '"ACDEFIKM"'),
    ),
    "statistics_are_averaged": (
        "G is false. Before a forward, rank 0's buffers overwrite those of the others. SyncBatchNorm uses the "
        "moments of all ranks.",
        ('"ACDEIKM"', '"ACDEGIKM"'),
    ),
    "barrier_before_the_batch": (
        "H is false. An all-reduce ends on no rank before all ranks have called it. So a barrier before the batch "
        "only adds a wait.",
        ('"ACDEIKM"', '"ACDEHIKM"'),
    ),
    "no_barrier_ever": (
        "I is true. A download is not a collective, so nothing else makes the others wait for it.",
        ('"ACDEIKM"', '"ACDEKM"'),
    ),
    "ranks_shuffle_alone": (
        "J is false. All ranks draw the same permutation, from seed + epoch, and take different places of it.",
        ('"ACDEIKM"', '"ACDEIJKM"'),
    ),
    "padding_is_harmless": (
        "K is true. The order is repeated from its start until all ranks have equally many samples.",
        ('"ACDEIKM"', '"ACDEIM"'),
    ),
    "goes_on_without_it": (
        "L is false. The others wait for that rank, until the time limit or the end of its process. Give all "
        "ranks equally many batches, or use ddp.join().",
        ('"ACDEIKM"', '"ACDEIKLM"'),
    ),
    "rank_is_local": (
        "M is true. RANK counts over all machines, LOCAL_RANK on each machine.",
        ('"ACDEIKM"', '"ACDEIK"'),
    ),
    "gradients_go_to_the_master": (
        "N is false. There the ranks learn each other's addresses. The gradients travel in an all-reduce.",
        ('"ACDEIKM"', '"ACDEIKMN"'),
    ),
    "facts_in_words": (
        "The verdicts are words. True and False are Python values, without quotes.",
        ('letter in "ACDEIKM"', 'str(letter in "ACDEIKM")'),
    ),
}


@alternative
def keywords():
    return dict(A=True, C=True, D=True, E=True, I=True, K=True, M=True) | dict.fromkeys(
        "BFGHJLN", False
    )


@alternative
def one_by_one():
    verdicts = dict.fromkeys("ABCDEFGHIJKLMN", True)
    for letter in "BFGHJLN":
        verdicts[letter] = False
    return verdicts

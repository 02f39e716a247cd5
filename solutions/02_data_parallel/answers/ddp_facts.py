"""Known mistakes of exercise ddp_facts, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "every_rank_starts_elsewhere": (
        "A is true. DDP's constructor compares the shapes of the parameters and then sends rank 0's parameters and "
        "buffers to all. Otherwise the ranks would average gradients that they took at different weights.",
        ('"ACDEIKM"', '"CDEIKM"'),
    ),
    "divides_the_batch": (
        "B is false: that is DataParallel. DDP computes on what its rank passes to it. A sampler gives each rank "
        "another batch.",
        ('"ACDEIKM"', '"ABCDEIKM"'),
    ),
    "step_synchronises": (
        "C is true. During backward, DDP starts to exchange a bucket once its gradients and the buckets before it are "
        "ready. The optimizer finds the mean in p.grad and sends nothing.",
        ('"ACDEIKM"', '"ADEIKM"'),
    ),
    "sum_of_shards": (
        "D is true. DDP divides the sum by the number of ranks, so do not divide once more. If each loss is a mean, "
        "shards of different sizes give a mean of means, and not the mean over all samples.",
        ('"ACDEIKM"', '"ACEIKM"'),
    ),
    "states_are_sent": (
        "E is true. All optimizers begin alike and get the same gradients, so they do the same, and nobody needs to "
        "send a state.",
        ('"ACDEIKM"', '"ACDIKM"'),
    ),
    "loss_of_all": (
        "F is false. The loss is that of the rank's samples; only gradients are averaged. For the loss of all ranks "
        "call a collective yourself, with weights.",
        ('"ACDEIKM"', '"ACDEFIKM"'),
    ),
    "statistics_are_averaged": (
        "G is false. Before a forward pass DDP sends the buffers of rank 0 to the others; no mean is taken. So the "
        "running statistics that rank 0 saves have seen its own batches only. SyncBatchNorm takes moments over all "
        "ranks.",
        ('"ACDEIKM"', '"ACDEGIKM"'),
    ),
    "barrier_before_the_batch": (
        "H is false. Operations are matched by their order on each rank, and no rank finishes an all-reduce before "
        "all ranks have called it. DDP synchronises in backward, so a barrier before the batch only adds a wait.",
        ('"ACDEIKM"', '"ACDEHIKM"'),
    ),
    "no_barrier_ever": (
        "I is true. A download is not an operation between ranks, so nothing else makes the others wait for it. This "
        "is what a barrier is good for.",
        ('"ACDEIKM"', '"ACDEKM"'),
    ),
    "ranks_shuffle_alone": (
        "J is false. All ranks draw the same permutation, from seed + epoch, and take different places of it. So no "
        "sample comes up twice unless samples are repeated to fill up.",
        ('"ACDEIKM"', '"ACDEIJKM"'),
    ),
    "padding_is_harmless": (
        "K is true. The order is filled up from its start until all ranks have equally many samples. For an accuracy "
        "take shards without padding, and combine them with their weights.",
        ('"ACDEIKM"', '"ACDEIM"'),
    ),
    "goes_on_without_it": (
        "L is false. The others wait in their backward pass for the rank that has stopped. The wait ends at the time "
        "limit, or with an error once that rank's process has ended. Make all shards equally long, or use ddp.join().",
        ('"ACDEIKM"', '"ACDEIKLM"'),
    ),
    "rank_is_local": (
        "M is true. RANK counts over all machines, LOCAL_RANK on each machine, and WORLD_SIZE is the number of all "
        "processes.",
        ('"ACDEIKM"', '"ACDEIK"'),
    ),
    "gradients_go_to_the_master": (
        "N is false. At that address the ranks meet at the start and learn each other's addresses. The gradients "
        "travel between the ranks in an all-reduce.",
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

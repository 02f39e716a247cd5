"""Known mistakes of exercise judge, and right answers in other styles."""

from course.checks.known_answers import alternative

MISTAKES = {
    "workers_share_the_dataset": (
        "A is false. Workers are processes, not threads: each has its own memory and its own copy of the dataset, "
        "and no other process sees what it keeps there. A cache is filled once in every worker.",
        ('"A": False', '"A": True'),
    ),
    "batch_is_divided": (
        "B is false. All eight indices go to one worker, which builds the whole batch; the next batch goes to the "
        "next worker. A single batch comes no sooner with more workers, only the stream of them is faster.",
        ('"B": False', '"B": True'),
    ),
    "pixels_in_the_message": (
        "C is true. collate has already written the pixels into shared memory. What is sent says where they are, and "
        "is as short for 64 images as for 8.",
        ('"C": True', '"C": False'),
    ),
    "pinned_if_it_fits": (
        "D is false. Pinned memory is memory of the host that is never paged out, so that a batch in it can be copied "
        "to the GPU while the program continues (non_blocking=True). How large the dataset is plays no part.",
        ('"D": False', '"D": True'),
    ),
    "prefetch_of_the_whole_loader": (
        "E is true. Indices of num_workers * prefetch_factor batches are sent at the start, and one more for each "
        "batch that is taken: 12 are always under way, and all may be ready. More workers cost memory.",
        ('"E": True', '"E": False'),
    ),
    "verdicts_in_words": (
        "The verdicts are words. True and False are Python values, without quotes.",
        ("return {", "return {letter: str(verdict) for letter, verdict in {"),
        ("True}", "True}.items()}"),
    ),
}


@alternative
def keywords():
    return dict(E=True, D=False, C=True, B=False, A=False)


@alternative
def the_true_ones():
    return {letter: letter in "CE" for letter in "ABCDE"}

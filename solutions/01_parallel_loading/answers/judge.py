"""Known mistakes of exercise judge, and right answers in other styles."""

from course.checks.engine import alternative, mistake

RIGHT = {"A": True, "B": False, "C": False, "D": True, "E": False, "F": True, "G": False, "H": True}


@mistake(
    "judge",
    "A is true. The loader only starts the workers. Its iterator sends indices and receives batches, and its code runs "
    "in the process that calls next(): that of the training loop, in a notebook the kernel.",
)
def main_is_another_process():
    return RIGHT | {"A": False}


@mistake(
    "judge",
    "B is false. Workers are processes, not threads: each has a memory and a copy of the dataset of its own, and what "
    "it keeps there nobody else sees. A cache is filled once in every worker.",
)
def workers_share_the_dataset():
    return RIGHT | {"B": True}


@mistake(
    "judge",
    "C is false. All eight indices go to one worker, which builds the whole batch; the next batch goes to the next "
    "worker. A single batch comes no sooner with more workers, only the stream of them is faster.",
)
def batch_is_divided():
    return RIGHT | {"C": True}


@mistake(
    "judge",
    "D is true. The list of indices is one message and the finished batch another, and collate has already written "
    "the pixels into shared memory. What is sent is the handle of it, as small for 1000 images as for one.",
)
def one_message_a_sample():
    return RIGHT | {"D": False}


@mistake(
    "judge",
    "E is false. Where __getitem__ is a look-up in memory there is next to nothing to divide, and every batch now "
    "costs messages and a start of processes on top. Such a loader is often slower with workers.",
)
def workers_always_pay():
    return RIGHT | {"E": True}


@mistake(
    "judge",
    "F is true. os.cpu_count() counts logical processors, two for each of these cores. To double it, as is sometimes "
    "advised, counts the hardware threads twice.",
)
def cores_counted():
    return RIGHT | {"F": False}


@mistake(
    "judge",
    "G is false. Pinned memory is memory of the host that is never paged out, so that a batch in it can be copied to "
    "the GPU while the program goes on (non_blocking=True). How large the dataset is plays no part.",
)
def pinned_if_it_fits():
    return RIGHT | {"G": True}


@mistake(
    "judge",
    "H is true. Indices of num_workers * prefetch_factor batches are sent at the start, and one more for each batch "
    "that is taken: 12 are always under way, and all may be ready. More workers cost memory.",
)
def prefetch_of_the_whole_loader():
    return RIGHT | {"H": False}


@mistake("judge", "The verdicts are words. True and False are values of their own in Python, without quotes.")
def verdicts_in_words():
    return {letter: str(verdict) for letter, verdict in RIGHT.items()}


@alternative("judge")
def keywords():
    return dict(H=True, G=False, F=True, E=False, D=True, C=False, B=False, A=True)


@alternative("judge")
def the_true_ones():
    return {letter: letter in "ADFH" for letter in "ABCDEFGH"}

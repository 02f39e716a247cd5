"""Known mistakes of exercise loading_facts, and right answers in other styles."""

from course.checks.engine import alternative, mistake

FACTS = {letter: letter in "ACDGKL" for letter in "ABCDEFGHIJKL"}


@mistake(
    "loading_facts",
    "A is true. Linux promises more memory than there is and finds it when it is written to; then it is too late for "
    "an exception. Only a single piece that is larger than all memory is refused at once.",
)
def memory_error_is_sure():
    return FACTS | {"A": False}


@mistake(
    "loading_facts",
    "B is false. Memory pages of a mapped file can be dropped at any time, for the file has them: the loader goes on, "
    "slower.",
)
def mapped_file_raises():
    return FACTS | {"B": True}


@mistake(
    "loading_facts",
    "C is true. The cache holds as much as there is room for, and the rest is read again: nothing fails.",
)
def os_cache_fails():
    return FACTS | {"C": False}


@mistake(
    "loading_facts",
    "D is true. The system holds the memory pages, not the process: a second run finds them, and all workers share "
    "them. That is also why a first measurement after another is not a cold one.",
)
def pages_are_the_process_s():
    return FACTS | {"D": False}


@mistake(
    "loading_facts",
    "E is false. The cache cannot hold all memory pages: those that came late have thrown out others, which are read "
    "again, and throw out the next. At least the part that does not fit comes from the disk in every epoch.",
)
def second_epoch_is_free():
    return FACTS | {"E": True}


@mistake(
    "loading_facts",
    "F is false. With the file in the cache the second epoch needs no disk at all; with O_DIRECT it reads all of it "
    "again. Bypassing pays when the file does not fit.",
)
def direct_is_always_faster():
    return FACTS | {"F": True}


@mistake(
    "loading_facts",
    "G is true. A window takes whole pages, and each page is in one window of an epoch, so memory depends on the "
    "window.",
)
def quasi_random_holds_the_file():
    return FACTS | {"G": False}


@mistake(
    "loading_facts",
    "H is false. The rows of a page come in the same window, never at both ends of an epoch. It is nearly random, in "
    "exchange for whole pages that are read once.",
)
def quasi_random_is_random():
    return FACTS | {"H": True}


@mistake(
    "loading_facts",
    "I is false. Pinned memory stays at its place, so that the GPU's copy engine can read it by itself while the "
    "processor goes on. The disk gains nothing.",
)
def pinned_for_the_disk():
    return FACTS | {"I": True}


@mistake(
    "loading_facts",
    "J is false. From pinned memory the copy is only queued when the call returns; what is written to the source "
    "before the copy's end may arrive. That is what wait() is for.",
)
def refilled_at_once():
    return FACTS | {"J": True}


@mistake(
    "loading_facts",
    "K is true. The disk's controller writes straight into your buffer, without the cache; it can do so in whole "
    "blocks only, and from it come the rules on alignment.",
)
def direct_has_no_rules():
    return FACTS | {"K": False}


@mistake(
    "loading_facts",
    "L is true. An iteration needs one product X^T (X v), which is one pass; the length of the step follows from it.",
)
def cg_reads_twice():
    return FACTS | {"L": False}


@alternative("loading_facts")
def keywords():
    return dict(L=True, K=True, J=False, I=False, H=False, G=True, F=False, E=False, D=True, C=True, B=False, A=True)


@alternative("loading_facts")
def one_by_one():
    verdicts = dict.fromkeys("ABCDEFGHIJKL", False)
    for letter in "ACDGKL":
        verdicts[letter] = True
    return verdicts

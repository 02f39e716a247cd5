"""Known mistakes of exercise sample_seed, and right answers in other styles."""

import hashlib

from course.checks.known_answers import alternative

SEED = "int(np.random.default_rng((seed, epoch, index)).integers(2**63))"

MISTAKES = {
    "sum_of_all": (
        "A sum is the same for image 5 of epoch 0 and image 4 of epoch 1. Hash the three numbers.",
        (SEED, "seed + epoch + index"),
    ),
    "decimal_places": (
        "Numbers side by side in one number run into each other when they are large. Hash the three numbers.",
        (SEED, "seed * 1_000_000 + epoch * 1_000 + index"),
    ),
    "side_by_side": (
        "Bits side by side: neighbours differ in a single bit. Hash the three numbers.",
        (SEED, "(seed % 2**21) << 42 | (epoch % 2**21) << 21 | index % 2**21"),
    ),
    "hash_of_a_text": (
        "Python's hash of a text is another one in each process. Use hashlib, or numpy's default_rng.",
        (SEED, 'hash(f"{seed} {epoch} {index}") % 2**63'),
    ),
    "epoch_left_out": (
        "The epoch is left out, so an image gets the same augmentation in every epoch.",
        ("((seed, epoch, index))", "((seed, index))"),
    ),
    "run_left_out": (
        "The seed of the run is left out, so all runs augment alike.",
        ("((seed, epoch, index))", "((epoch, index))"),
    ),
    "xor_of_all": (
        "XOR of the three does not care which number is which. Hash them as a sequence.",
        ("((seed, epoch, index))", "(seed ^ epoch ^ index)"),
    ),
    "half_the_bits": (
        "Only 32 bits are used: among some 65,000 seeds two are probably equal. Use all 63.",
        ("integers(2**63)", "integers(2**32)"),
    ),
    "one_bit_too_many": (
        "The seed has 64 bits and may be 2**63 or more. Draw it below 2**63, or shift it by one bit.",
        ("integers(2**63)", "integers(2**64, dtype=np.uint64)"),
    ),
    "global_numbers_seeded": (
        "Your function reseeds torch's global random numbers. Use your own generator.",
        ("return int(", "torch.default_generator.manual_seed(int("),
        ("integers(2**63))", "integers(2**63)))\n    return int(torch.randint(2**63 - 1, ()))"),
    ),
    "worker_takes_part": (
        "The seed depends on the worker that builds the batch. Use the three numbers only.",
        ("((seed, epoch, index))", "((seed, epoch, index, get_worker_info().id + 1 if get_worker_info() else 0))"),
    ),
    "number_of_numpy": (
        "That is a number of NumPy, not a Python int. Make it one: int(...).",
        ("int(np", "(np"),
    ),
}


@alternative
def digest_of_a_text(seed, epoch, index):
    return int(hashlib.sha256(f"{seed}/{epoch}/{index}".encode()).hexdigest(), 16) % 2**63


@alternative
def mixed_by_hand(seed, epoch, index):
    mixed = 0
    for number in (seed, epoch, index):  # the finalizer of splitmix64, once for each number
        mixed = (mixed + number + 0x9E3779B97F4A7C15) % 2**64
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        mixed ^= mixed >> 31
    return mixed >> 1

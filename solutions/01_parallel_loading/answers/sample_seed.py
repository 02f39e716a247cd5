"""Known mistakes of exercise sample_seed, and right answers in other styles."""

import hashlib
import random

import numpy
import torch
from torch.utils.data import get_worker_info

from course.checks.engine import alternative, mistake


def hashed(*parts, size=8):
    """A good hash of anything that can be printed."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=size).digest(), "big")


@mistake("sample_seed", "A sum is the same for image 5 of epoch 0 and image 4 of epoch 1. Hash the three numbers.")
def sum_of_all(seed, epoch, index):
    return seed + epoch + index


@mistake(
    "sample_seed", "Numbers side by side in one number run into each other when they are large. Hash the three numbers."
)
def decimal_places(seed, epoch, index):
    return seed * 1_000_000 + epoch * 1_000 + index


@mistake("sample_seed", "Bits side by side: neighbours differ in a single bit. Hash the three numbers.")
def side_by_side(seed, epoch, index):
    return (seed % 2**21) << 42 | (epoch % 2**21) << 21 | index % 2**21


@mistake("sample_seed", "Python's hash of a text is another one in each process. Use hashlib, or numpy's default_rng.")
def hash_of_a_text(seed, epoch, index):
    return hash(f"{seed} {epoch} {index}") % 2**63


@mistake("sample_seed", "The epoch is left out, so an image gets the same augmentation in every epoch.")
def epoch_left_out(seed, epoch, index):
    return hashed(seed, index) >> 1


@mistake("sample_seed", "The seed of the run is left out, so all runs augment alike.")
def run_left_out(seed, epoch, index):
    return hashed(epoch, index) >> 1


@mistake("sample_seed", "XOR of the three does not care which number is which. Hash them as a sequence.")
def xor_of_all(seed, epoch, index):
    return hashed(seed) >> 1 ^ hashed(epoch) >> 1 ^ hashed(index) >> 1


@mistake("sample_seed", "Only 32 bits are used: among some 65,000 seeds two are probably equal. Use all 63.")
def half_the_bits(seed, epoch, index):
    return hashed(seed, epoch, index, size=4)


@mistake("sample_seed", "The seed has 64 bits and may be 2**63 or more. Draw it below 2**63, or shift it by one bit.")
def one_bit_too_many(seed, epoch, index):
    return hashed(seed, epoch, index)


@mistake("sample_seed", "torch's global random numbers are seeded anew on the way. Use a generator of your own.")
def global_numbers_seeded(seed, epoch, index):
    torch.default_generator.manual_seed(hashed(seed, epoch, index) >> 1)  # torch.manual_seed is slow: GPUs get it too
    return int(torch.randint(2**63 - 1, ()))


@mistake(
    "sample_seed",
    "The seed depends on the worker that builds the batch. Use the three numbers only.",
)
def worker_takes_part(seed, epoch, index):
    return hashed(seed, epoch, index, get_worker_info() and get_worker_info().id) >> 1


@mistake("sample_seed", "That is a number of NumPy, not a Python int. Make it one: int(...).")
def number_of_numpy(seed, epoch, index):
    return numpy.int64(hashed(seed, epoch, index) >> 1)


@alternative("sample_seed")
def digest_of_a_text(seed, epoch, index):
    return int(hashlib.sha256(f"{seed}/{epoch}/{index}".encode()).hexdigest(), 16) % 2**63


@alternative("sample_seed")
def words_of_a_sequence(seed, epoch, index):
    high, low = numpy.random.SeedSequence([seed, epoch, index]).generate_state(2).tolist()
    return (high << 32 | low) >> 1


@alternative("sample_seed")
def seeded_by_a_text(seed, epoch, index):
    return random.Random(repr((seed, epoch, index))).getrandbits(63)


@alternative("sample_seed")
def mixed_by_hand(seed, epoch, index):
    mixed = 0
    for number in (seed, epoch, index):  # the finalizer of splitmix64, once for each number
        mixed = (mixed + number + 0x9E3779B97F4A7C15) % 2**64
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        mixed ^= mixed >> 31
    return mixed >> 1

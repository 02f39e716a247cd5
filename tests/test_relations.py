"""What a report says of two values that differ: never the same text twice, and only relations that hold."""

import pytest
import torch

from course.engine.compare import difference, differs
from course.engine.difference import Difference, Kind
from course.engine.relations import expected_elsewhere, relation
from course.engine.report import difference_texts, relation_text

pytestmark = pytest.mark.check
x = torch.tensor([0.31, -1.72, 2.53, 0.044, 5.05, -0.36])
wide = (x.double() / 7).reshape(2, 3)


@pytest.mark.parametrize(
    "seen, expected, words",
    [
        (-x, x, "Each value that differs is the expected one with the other sign."),
        (x / 4, x, "Each value that differs is 1/4 of the expected one."),
        (-3 * x, x, "Each value that differs is -3 times the expected one."),
        (x * 0.9, x, "Each value that differs is 0.9 times the expected one."),
        (x.flip(0), x, "Yours are the expected values in another order."),
        (torch.cat([x[:1], x[:-1]]), x, "Each value is the one that is expected one place earlier."),
        (torch.cat([x[1:], x[-1:]]), x, "Each value is the one that is expected one place later."),
        (wide.T, wide, "Yours is the expected tensor, transposed."),
        (wide.reshape(3, 2), wide, "The values are right, only their shape is not."),
        (wide.float().double(), wide, "Yours has the digits of float32. Is a part computed or kept in it?"),
        (x.bfloat16().float(), x, "Yours has the digits of bfloat16. Is a part computed or kept in it?"),
        ({"a": x, "b": [2 * x]}, {"a": x, "b": [x]}, "Each value that differs is 2 times the expected one."),
        ([0.1, 0.1, 0.2, 0.5], [0.1, 0.2, 0.5, 0.8], "Each value is the one that is expected one place earlier."),
        (0.2468, 0.1234, "Yours is 2 times the expected value."),
        (0.00153, 1.53, "Yours is 1/1000 of the expected value."),
        (-0.5129, 0.5129, "Yours is the expected value with the other sign."),
    ],
)  # fmt: skip
def test_a_relation_is_told(seen, expected, words):
    assert differs(seen, expected) and relation_text(relation(seen, expected)) == words


@pytest.mark.parametrize(
    "seen, expected",
    [
        (3, 2),
        (0.55, 0.45),
        (1.4375, 1.45264),  # a number of bfloat16 by accident
        (x + 0.5, x),
        (float("nan"), 1.5),
        (float("inf"), 1.5),
        (10**400, 1.5),
        (True, False),
        ("a", "b"),
        ([1, "a"], [2, "a"]),
        (torch.zeros(6), x),
        (x > 0, x > 1),
        (x * torch.tensor([2, 2, 2, 2, 2, 3]), x),
        (torch.zeros(3, 2), torch.zeros(2, 3)),
        (torch.zeros(0), torch.ones(2)),
        (torch.ones(3), torch.ones(2)),
        (torch.tensor(2.0), 1.0),
        ([1, 2], [1, 2, 3]),
        (x.to("meta"), x),
        (x.to_sparse(), x),
        (x.to(torch.complex64), 2 * x),
        (torch.zeros(400, 400), torch.ones(400, 400)),
        (torch.tensor([2.7e20, 1.1e27, 2.7e25, 1.1e24, 2.6e22, 1.6e21]).double(), x.double()),  # ratios above 64 bits
    ],
)
def test_what_may_be_an_accident_is_not_told(seen, expected):
    assert relation(seen, expected) is None
    assert expected_elsewhere("here", seen, {"here": expected, "there": expected}) is None


def test_relations_of_random_numbers_are_not_found():
    rng = torch.Generator().manual_seed(0)
    singles = torch.rand(4000, 2, generator=rng, dtype=torch.float64).tolist()
    assert sum(relation(*pair) is not None for pair in singles) <= 20  # a factor that is near to a whole one
    rows = torch.rand(500, 2, 4, generator=rng)
    assert not any(relation(*pair) for pair in rows)


@pytest.mark.parametrize(
    "seen, expected",
    [
        (0.30000004, 0.3),
        (1.0000001, 1),
        (torch.tensor([1.0, 0.30000001], dtype=torch.float64) * 3, torch.tensor([1.0, 0.3], dtype=torch.float64) * 3),
        (torch.tensor(2.0000001, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64)),
        ({"a": [1, 2.00000001]}, {"a": [1, 2]}),
        (10**20 + 1, 10**20),
        (list(range(99)), list(range(100))),
        ("a" * 300 + "b", "a" * 300 + "c"),
        (torch.tensor([2**62 + 1]), torch.tensor([2**62])),
    ],
)
def test_two_values_that_differ_never_have_the_same_text(seen, expected):
    lines = difference_texts(difference(seen, expected) or Difference(Kind.VALUE, seen, expected))
    yours, right = lines[-2].removeprefix("yours"), lines[-1].removeprefix("expected")
    assert yours.partition(" at [")[0].split() != right.split()
    assert max(map(len, (yours, right))) < 250


def test_what_is_expected_elsewhere_is_told():
    facts = {"power 1": [0.1, 0.2, 0.3], "power 2": [0.01, 0.04, 0.09], "kind": "float", "one": 1}
    words = 'Yours is what is expected under "power 1".'
    assert relation_text(expected_elsewhere("power 2", [0.1, 0.2, 0.3], facts)) == words
    assert expected_elsewhere("power 2", [0.1, 0.2, 0.4], facts) is None
    assert expected_elsewhere("power 1", 1, facts) is None
    assert expected_elsewhere("power 1", "float", facts) is None

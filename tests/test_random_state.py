import json

import numpy as np
import pytest

from gpn_ref.random_state import generator, load, save


def test_numbers_stay_the_same_for_ever():
    assert generator(0, "batches").integers(1000, size=4).tolist() == [619, 885, 403, 284]


def test_seed_and_name_both_matter():
    draws = [generator(seed, name).random(8) for seed in (0, 1) for name in ("batches", "samples")]
    assert len({draw.tobytes() for draw in draws}) == 4
    np.testing.assert_array_equal(generator(1, "samples").random(8), draws[3])


@pytest.mark.parametrize("before", [0, 1, 7])
def test_state_goes_through_json(before):
    random = generator(3, "x")
    random.integers(10, size=before, dtype=np.int32)  # an odd number leaves half a word in the generator
    state = json.loads(json.dumps(save(random)))
    expected = random.integers(1000, size=5, dtype=np.int32), random.permutation(9), random.standard_normal(3)
    other = generator(0, "y")
    load(other, state)
    actual = other.integers(1000, size=5, dtype=np.int32), other.permutation(9), other.standard_normal(3)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("state", [{}, None, [], {"bit_generator": "PCG64"}, {"bit_generator": "MT19937", "state": 1}])
def test_what_is_no_state(state):
    with pytest.raises(ValueError, match=r"is not the state of a random generator$"):
        load(generator(0, "x"), state)


def test_later_draws_do_not_change_a_saved_state():
    random = generator(0, "x")
    state = save(random)
    first = random.random(3)
    load(random, state)
    np.testing.assert_array_equal(random.random(3), first)

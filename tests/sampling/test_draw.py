"""Generators: each request its own, the model's stream for those without a seed."""

import pytest

from flm.sampling.draw import ModelRandom, RequestRandom


@pytest.mark.parametrize("seed", [0, 1, 42, 2**63, 2**64 - 1])
def test_a_seed_gives_its_numbers_again(seed: int) -> None:
    first, second = RequestRandom(seed), RequestRandom(seed)
    numbers = [first.next_uniform() for _ in range(50)]
    assert numbers == [second.next_uniform() for _ in range(50)]
    assert all(0 <= number < 1 for number in numbers)
    assert len(set(numbers)) == 50


def test_neighbouring_seeds_are_strangers() -> None:
    assert RequestRandom(1).next_uniform() != RequestRandom(2).next_uniform()


def test_generators_do_not_disturb_each_other() -> None:
    alone = RequestRandom(7)
    expected = [alone.next_uniform() for _ in range(3)]
    one, other = RequestRandom(7), RequestRandom(8)
    found = []
    for _ in range(3):
        found.append(one.next_uniform())
        other.next_uniform()
    assert found == expected


def test_the_models_stream_gives_seeds_of_64_bits() -> None:
    stream = ModelRandom(3)
    seeds = [stream.next_seed() for _ in range(200)]
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert max(seeds) >= 2**63
    assert len(set(seeds)) == 200
    again = ModelRandom(3)
    assert [again.next_seed() for _ in range(200)] == seeds


def test_without_a_seed_the_stream_starts_anew() -> None:
    assert ModelRandom(None).next_seed() != ModelRandom(None).next_seed()

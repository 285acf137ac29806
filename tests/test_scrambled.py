"""The profile that scenarios run with beside the sandbox's own: it is unlike it, and it is valid."""

import pytest

from payasync import SortedPairs
from payasync.profile.signed_fields import COMPARED
from payasync.sandbox import PROFILE
from tests.scrambled import scrambled, words

SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_word_is_shared(seed: int) -> None:
    """What the document leaves open has other words in every scrambled profile."""
    profile = scrambled(seed)

    assert set() == words(profile) & words(PROFILE)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_option_of_the_signature_is_shared(seed: int) -> None:
    """Each option of the signature that could differ does."""
    scheme, own = scrambled(seed).signature, PROFILE.signature
    assert isinstance(scheme, SortedPairs)
    assert isinstance(own, SortedPairs)
    options = {"algorithm", "encoding", "separator", "exclude", "skip_empty", "append_path", "prehash", "nested"}
    options |= {"skip_null", "booleans", "numbers"}

    assert set() == {name for name in options if getattr(scheme, name) == getattr(own, name)}


def test_structures_vary() -> None:
    """Over some seeds, each structure that services differ in comes both ways."""
    drawn = [scrambled(seed) for seed in SEEDS]
    seen = {
        (bool(each.answer.data), bool(each.answer.signature), each.notification.verification, isinstance(code, int))
        for each in drawn
        for code in each.answer.ok
    }

    assert [2, 2, 2, 2] == [len(set(column)) for column in zip(*seen, strict=True)]
    assert {True, False} == {bool(each.http.not_executed) for each in drawn}
    assert {True, False} == {each.answer.refusals_signed for each in drawn if each.answer.signature}
    assert {None} == {each.answer.refusals_signed for each in drawn if not each.answer.signature}
    assert {(410,), (412,), (423,)} == {each.http.duplicate for each in drawn}
    for name in COMPARED:
        paths = {getattr(each.answer, name) for each in drawn}
        assert {None, ""} < paths
        assert {0, 1} <= {path.count(".") for path in paths if path}
    assert {"path", "header"} == {each.payment_status.place for each in drawn if each.payment_status}

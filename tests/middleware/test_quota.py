from hypothesis import given
from hypothesis import strategies as st

from payasync.middleware.retry import RETRY_COST, Quota


def test_empty_bucket_allows_no_retry() -> None:
    """What is not there cannot be taken, and taking nothing leaves what there is."""
    quota = Quota(12)

    assert [True, True, False] == [quota.take(5), quota.take(5), quota.take(5)]
    assert 2 == quota.tokens
    assert quota.take(2)


def test_no_capacity_allows_no_retry() -> None:
    """A quota of 0 switches retries off, and stays so whatever succeeds."""
    quota = Quota(0)
    quota.pay_back(10)

    assert not quota.take(RETRY_COST)


@given(st.integers(0, 1000), st.lists(st.integers(0, 20).map(lambda n: ("take", n)) | st.just(("pay_back", 5))))
def test_bucket_stays_between_empty_and_full(capacity: int, steps: list[tuple[str, int]]) -> None:
    """There are never more tokens than the capacity, nor fewer than none."""
    quota = Quota(capacity)
    for name, tokens in steps:
        getattr(quota, name)(tokens)

        assert 0 <= quota.tokens <= capacity


def test_questions_have_tokens_of_their_own() -> None:
    """Retries that failed leave a question what successes gave for it, at most a tenth of the capacity."""
    quota = Quota(100)
    for _ in range(50):
        quota.pay_back(0)
    retries = [quota.take(RETRY_COST) for _ in range(21)]
    questions = [quota.take(RETRY_COST, asking=True) for _ in range(3)]

    assert [*[True] * 20, False] == retries
    assert [True, True, False] == questions


def test_question_takes_what_retries_may_take_first() -> None:
    """What is kept for questions is touched last; a service that never answered gets none beyond the quota."""
    quota = Quota(100)
    taken = [quota.take(RETRY_COST, asking=True) for _ in range(21)]

    assert [*[True] * 20, False] == taken

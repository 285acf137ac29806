"""Faults with payasync's own client: the documented outcome, and money moved once."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import pytest

from payasync import CreateRefund, RefundResponse, RetryPolicy, Session, Timeouts
from payasync.errors import NoAnswerError, NotSentError, OutcomeUnknownError
from payasync.sandbox import Sandbox
from tests.sandbox.world import SAMPLES, World

FAST: Final = RetryPolicy(base_delay=0.001)
"""Short delays between attempts."""


@pytest.fixture
def sandbox(world: World) -> Sandbox:
    """A sandbox of each profile: faults are the same for all of them."""
    return world.sandbox


@pytest.fixture
async def pay(sandbox: Sandbox) -> AsyncIterator[Session]:
    """A session of the sandbox."""
    async with sandbox.session(retry=FAST) as session:
        yield session


async def refund(pay: Session, order: str) -> RefundResponse:
    """Ask for a refund."""
    sample = CreateRefund(out_trade_no=order, out_refund_no="R1", total_amt=450, refund_amt=100, refund_desc="cold")
    return await pay.send(sample)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("reset_after_commit", {}),
        ("server_error", {"phase": "after"}),
        ("truncated_body", {}),
        ("malformed_json", {}),
        ("huge_body", {}),
        ("gzip_bomb", {}),
        ("redirect", {"status": 307, "phase": "after"}),
    ],
    ids=str,
)
async def test_lost_response_is_recovered(
    sandbox: Sandbox, pay: Session, kind: str, options: Mapping[str, Any]
) -> None:
    """If the response is lost after the commit, a query finds the refund, and it is never made again."""
    order = await sandbox.given.paid_order()
    fault = sandbox.faults.arm(kind, "refunds.create", **options)
    answer = await refund(pay, order)

    assert (True, 2, "succeeded") == (answer.recovered, answer.attempts, answer.state)
    assert (1, 100, 1) == (fault.fired, sandbox.ledger.refunded(order), sandbox.ledger.refunds())


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("latency", {"seconds": 0.01}),
        ("latency", {"seconds": 0.01, "phase": "after"}),
        ("wrong_content_type", {}),
        ("slow_drip", {"seconds": 0.0001}),
        ("notification.before_answer", {}),
    ],
    ids=str,
)
async def test_late_and_odd_responses_count(
    sandbox: Sandbox, pay: Session, kind: str, options: Mapping[str, Any]
) -> None:
    """A slow response counts, and so does right JSON with a wrong content type."""
    order = await sandbox.given.paid_order()
    fault = sandbox.faults.arm(kind, "refunds.create", **options)
    answer = await refund(pay, order)

    assert (False, 1) == (answer.recovered, answer.attempts)
    assert (1, 100) == (fault.fired, sandbox.ledger.refunded(order))


@pytest.mark.parametrize(
    "retry_after", ["absent", "0", pytest.param("date", marks=pytest.mark.long), "past", "nonsense", "huge"]
)
async def test_rate_limited_read_is_retried(sandbox: Sandbox, retry_after: str) -> None:
    """A 429 of a query is tried again, and a senseless Retry-After does no harm."""
    order = await sandbox.given.paid_order()
    fault = sandbox.faults.rate_limited("orders.query", order=order, retry_after=retry_after)
    async with sandbox.session(retry=FAST) as pay:
        found = await pay.orders.query(order)

    assert (2, "paid", 1) == (found.attempts, found.state, fault.fired)


@pytest.mark.parametrize(
    ("kind", "phase", "made"),
    [
        ("reset_before", "before", 0),
        ("reset_after_commit", "after", 1),
        ("server_error", "before", 0),
        ("server_error", "after", 1),
        ("hang", "before", 0),
        ("hang", "after", 1),
        ("stale_keep_alive", "before", 0),
    ],
)
async def test_write_without_a_number_is_never_repeated(sandbox: Sandbox, kind: str, phase: str, made: int) -> None:
    """A payment of endpoint 1 without a usable response is never sent again, whether it was made or not."""
    async with sandbox.session(timeouts=Timeouts(total=5, read=0.3), retry=FAST) as pay:
        await pay.send(SAMPLES["payments.create"])
        fault = sandbox.faults.arm(kind, "payments.create", phase=phase)
        with pytest.raises(OutcomeUnknownError) as caught:
            await pay.send(SAMPLES["payments.create"])

    assert (1, 1) == (caught.value.attempts, fault.fired)
    assert 1 + made == sandbox.ledger.payments()


@pytest.mark.parametrize(("kind", "status"), [("server_error", 503), ("rate_limited", 429)])
async def test_failure_has_the_profiles_shape(world: World, kind: str, status: int) -> None:
    """A 5xx and a 429 have the shape of all refusals, with the profile's code for what may be retried."""
    world.sandbox.faults.arm(kind)
    answer = await world.tell(SAMPLES["orders.query"])

    assert (status, "busy") == (answer.status, answer.why)


async def test_error_names_the_call(sandbox: Sandbox, pay: Session) -> None:
    """The client's error names the operation and the number."""
    sandbox.faults.refuse()
    with pytest.raises(NotSentError) as raised:
        await pay.send(SAMPLES["refunds.create"])

    assert ("refunds.create", "R1") == (raised.value.operation, raised.value.reference)


async def test_reset_read_is_retried(sandbox: Sandbox, pay: Session) -> None:
    """A read is tried again after a reset, until its attempts are over."""
    order = await sandbox.given.paid_order()
    fault = sandbox.faults.reset_before("orders.query", order=order)
    found = await pay.orders.query(order)
    sandbox.faults.reset_before("orders.query", times=None)
    with pytest.raises(NoAnswerError):
        await pay.orders.query(order)

    assert (2, "paid", 1) == (found.attempts, found.state, fault.fired)


async def test_refused_is_not_sent(sandbox: Sandbox, pay: Session) -> None:
    """If the service does not listen, nothing was sent; later the same session works again."""
    order = await sandbox.given.paid_order()
    await pay.send(SAMPLES["payments.create"])
    fault = sandbox.faults.refuse()
    with pytest.raises(NotSentError) as caught:
        await pay.send(SAMPLES["payments.create"])
    fault.disarm()
    answer = await refund(pay, order)

    assert (False, 3) == (caught.value.sent, caught.value.attempts)
    assert (1, 1, 100) == (sandbox.ledger.payments(), answer.attempts, sandbox.ledger.refunded(order))


async def test_random_resets_are_repeatable() -> None:
    """Under random resets every refund is made once, and the same seed resets the same calls."""

    async def story() -> list[int]:
        async with Sandbox() as service, service.session(retry=FAST) as pay:
            fault = service.faults.reset_after_commit("refunds.create", probability=0.5, seed=20)
            order = await service.given.paid_order(total_amt=1000)
            responses = [
                await pay.refunds.create(out_trade_no=order, out_refund_no=f"R{n}", total_amt=1000, refund_amt=10)
                for n in range(20)
            ]
            assert (200, 20) == (service.ledger.refunded(order), service.ledger.refunds())
            assert fault.fired == sum(one.recovered for one in responses)
            return [n for n, one in enumerate(responses) if one.recovered]

    first, second = await story(), await story()

    assert first == second
    assert 2 < len(first) < 18


async def test_lost_responses_of_orders(sandbox: Sandbox, pay: Session) -> None:
    """An order that the merchant numbered is found again, and a close that was done is done."""
    sandbox.faults.reset_after_commit("orders.place")
    sandbox.faults.reset_after_commit("orders.close", order="T1")
    placed = await pay.send(SAMPLES["orders.place"])
    closed = await pay.orders.close("T1")

    assert (True, "closed") == (placed.recovered, closed.state)
    assert (1, "closed") == (sandbox.ledger.orders(), sandbox.ledger.order_state("T1"))


@pytest.mark.parametrize(
    "ask",
    [lambda pay, order: pay.orders.query(order), lambda pay, order: pay.payments.status(order)],
    ids=["body", "query"],
)
async def test_numbers_match_in_body_and_query(
    sandbox: Sandbox, pay: Session, ask: Callable[[Session, str], object]
) -> None:
    """A number matches in a body and in a query; calls about another order do not."""
    mine, other = await sandbox.given.paid_order(), await sandbox.given.paid_order()
    fault = sandbox.faults.server_error(order=mine)
    await ask(pay, other)  # type: ignore[misc] # both are coroutines
    before = fault.seen
    await ask(pay, mine)  # type: ignore[misc] # as above

    assert (0, 2, 1) == (before, fault.seen + fault.fired, fault.fired)


async def test_order_matches_queries_of_its_refund_and_payment(sandbox: Sandbox, pay: Session) -> None:
    """A call that names a refund, or a payment by the service's number, matches the order behind it."""
    order = await sandbox.given.paid_order()
    paid = await pay.payments.status(order)
    await refund(pay, order)
    matching = [sandbox.faults.latency(on, order=order, seconds=0.001) for on in ("refunds.status", "payments.status")]
    other = sandbox.faults.latency(order="T9", seconds=0.001)
    await pay.refunds.status("R1")
    await pay.payments.status(str(paid.payment_id))
    other.disarm()

    assert ([1, 1], 0) == ([fault.fired for fault in matching], other.seen)

"""Pages of gateways, firewalls and other hops, which say nothing about a request."""

from itertools import product
from typing import Any, Final

from attrs import evolve

from payasync import Credentials, RefundResponse, SortedPairs
from payasync.errors import AuthenticationError, DuplicateError, NoAnswerError, OutcomeUnknownError, ServiceError
from payasync.profile import AnswerShape, HttpCodes, Parameter, Profile, Recovery, ResultCodes
from tests.foreign.recorder import RESET, Recorder, answer
from tests.sessions import create, ended

KEYS: Final = Credentials(merchant_id="M1", secret_key="sk_secret", signing_key="a signing key of ours")
SIGNATURE: Final = SortedPairs(algorithm="hmac-sha256", encoding="hex")
BARE: Final = Profile(signature=SIGNATURE, refund_status=Parameter("outRefundNo"))
CODED: Final = Profile(
    signature=SIGNATURE,
    signed=("refunds.create", "refunds.status"),
    answer=AnswerShape(code="code", ok=("OK",), message="message"),
    codes=ResultCodes(not_executed=("PARAM",), retryable=("BUSY",), absent=("NONE", "there is no such refund")),
    http=HttpCodes(absent=(404,), rate_limit_precedes_execution=True),
    recovery=Recovery(quarantine=0.0),
    refund_status=Parameter("outRefundNo"),
)
REFUND: Final[dict[str, Any]] = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}
PAGES: Final = {
    "html": b"<html><h1>Not Found</h1></html>",
    "empty": b"",
    "text": b"default backend - 404",
    "list": b"[]",
    "status": b'{"code": 404, "message": "no Route matched with those values"}',
    "status as text": b'{"code": "404", "message": "Not Found"}',
    "no code": b'{"message": "no Route matched with those values"}',
    "code of another type": b'{"code": true}',
    "empty code": b'{"code": ""}',
    "used nonce": b'{"message": "the nonce was used before"}',
}
"""What hops send in place of the service."""


async def test_listed_message_makes_no_text_a_code() -> None:
    """If success has an integer code, a firewall's code that is a text is not the service's, whatever is listed."""
    codes = evolve(CODED.codes, not_executed=(40,), retryable=(), absent=(4040, "no such refund"))
    profile = evolve(CODED, answer=evolve(CODED.answer, ok=(0,)), codes=codes)
    found, sends = await refunded(Recorder(otherwise=answer(403, b'{"code": "AccessDenied"}')), profile)

    assert (OutcomeUnknownError, 1) == (type(found), sends)


async def refunded(service: Recorder, profile: Profile = CODED) -> Any:
    """Return the response or the error of a refund, and how often it was sent."""
    found = await ended(lambda pay: pay.refunds.create(**REFUND), service, profile, KEYS)
    return found, sum(each.path == "/payment/refund" for each in service.requests)


async def test_page_is_no_absence() -> None:
    """After a lost response, a hop's 404 is not the service's "not found": the refund is not sent again."""
    for page in PAGES.values():
        found, sends = await refunded(Recorder([RESET], otherwise=answer(404, page)))

        assert (OutcomeUnknownError, 1) == (type(found), sends)


async def test_listed_code_is_absence() -> None:
    """A listed code or message of "not found" is final: the refund is sent again."""
    for said in [answer(404, b'{"code": "NONE"}'), answer(404, b'{"code": "X", "message": "there is no such refund"}')]:
        found, sends = await refunded(Recorder([RESET, said], otherwise=answer(200, b'{"code": "OK"}')))

        assert (None, 2) == (found.state, sends)


async def test_code_that_repeats_the_status() -> None:
    """A listed code that only repeats the status is no "not found", unless a listed message says it, too."""
    for message, sends in [("Not Found", 1), ("there is no such refund", 2)]:
        profile = evolve(CODED, codes=ResultCodes(absent=("404", "there is no such refund")))
        said = answer(404, b'{"code": "404", "message": "%s"}' % message.encode())

        assert sends == (await refunded(Recorder([RESET, said], otherwise=answer(200, b'{"code": "OK"}')), profile))[1]


async def test_page_refuses_nothing() -> None:
    """A hop's 4xx leaves a write in doubt, also a 429, and the error says how to list the status."""
    statuses = product([400, 403, 404, 422, 409, 418, 429], (PAGES["html"],))
    for status, page in (*statuses, *product((404, 429), PAGES.values())):
        found, sends = await refunded(Recorder(otherwise=answer(status, page.replace(b"404", b"%d" % status))))
        hint = f"list {status} in http.uncoded of the profile if your service sends this itself"

        assert (OutcomeUnknownError, 1) == (type(found), sends)
        assert not page or status == 429 or hint in str(found)


async def test_rate_limit_of_the_service() -> None:
    """If the profile says that a 429 precedes execution, it does so with a listed code, or if 429 is in `uncoded`."""
    for body, http, sends in [
        (b'{"code": "BUSY"}', CODED.http, 2),
        (b"", HttpCodes(uncoded=(429,), rate_limit_precedes_execution=True), 2),
        (b'{"code": "SLOW"}', CODED.http, 1),
        (b'{"code": "BUSY"}', HttpCodes(), 1),
    ]:
        service = Recorder([answer(429, body)], otherwise=answer(200, b'{"code": "OK"}'))
        found, sent = await refunded(service, evolve(CODED, http=http))

        assert (200, sends) == (found.http_status, sent)


async def test_refusal_of_the_service() -> None:
    """A code of the right type, a JSON object if there are no codes, and a status of `http.uncoded` refuse."""
    for said, profile in [
        (answer(403, b'{"code": "WHATEVER"}'), CODED),
        (answer(403, b'{"code": "WHATEVER"}'), evolve(CODED, answer=AnswerShape(code="code", code_optional=True))),
        (answer(404, b'{"message": "the shop is closed"}'), BARE),
        (answer(400, b"<html>"), evolve(BARE, http=HttpCodes(uncoded=(400,)))),
        *((answer(status, b""), CODED) for status in (405, 413, 415)),
    ]:
        found, sends = await refunded(Recorder(otherwise=said), profile)

        assert isinstance(found, ServiceError)
        assert (False, 1) == (found.absent, sends)


async def test_listed_message_is_no_page() -> None:
    """A response with a listed message is the service's, also without a code: the error does not say otherwise."""
    profile = evolve(CODED, codes=evolve(CODED.codes, retryable=("try later",)))
    found, sends = await refunded(Recorder(otherwise=answer(400, b'{"message": "try later"}')), profile)

    assert (OutcomeUnknownError, 1) == (type(found), sends)
    assert ("the service failed" in str(found), "http.uncoded" in str(found)) == (True, False)


async def test_wrong_key() -> None:
    """A 401 is an `AuthenticationError`, whatever its body."""
    for page, profile in product(PAGES.values(), [BARE, CODED]):
        found, sends = await refunded(Recorder(otherwise=answer(401, page)), profile)

        assert (AuthenticationError, 1) == (type(found), sends)


USED: Final = evolve(CODED, codes=evolve(CODED.codes, duplicate=("USED",)))
NO_SUCH: Final = answer(404, b'{"code": "NONE"}')
OK: Final = answer(200, b'{"code": "OK"}')


async def test_used_nonce_by_a_listed_code() -> None:
    """A hop may have sent the request twice: a listed code of a used nonce never says that nothing was done."""
    for status in [401, 403]:
        for before, sends in [((), 1), ((RESET,), 1), ((RESET, NO_SUCH), 2)]:
            said = answer(status, b'{"code": "USED"}')
            found, sent = await refunded(Recorder([*before, said], otherwise=OK), USED)
            error: type[Any] = {0: DuplicateError, 1: OutcomeUnknownError}.get(len(before), RefundResponse)

            assert (error, sends) == (type(found), sent)


async def test_used_nonce_of_a_write_without_a_number() -> None:
    """If no query finds the write, a used nonce leaves it unknown."""
    for status in [401, 403]:
        service = Recorder(otherwise=answer(status, b'{"code": "USED"}'))

        assert OutcomeUnknownError is type(await ended(create, service, USED, KEYS))
        assert 1 == len(service.requests)


async def test_query_that_a_hop_answers() -> None:
    """A hop's 404 is no response to a query."""
    for page in PAGES.values():
        found = await ended(lambda pay: pay.refunds.status("R1"), Recorder(otherwise=answer(404, page)), CODED, KEYS)

        assert (NoAnswerError, 404) == (type(found), found.response.http_status)

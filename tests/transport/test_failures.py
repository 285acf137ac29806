"""What aiohttp raises becomes an error of ours, named for what was proven."""

import errno
import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from payasync import NoAnswerError, NoAnswerTimeoutError, NotSentError, NotSentTimeoutError
from payasync.transport.deadlines import NoFreeConnectionError
from payasync.transport.send import AnswerTooLargeError, failure, phrase

ADDRESS = "https://pay.example"
KEY = ConnectionKey("pay.example", 443, is_ssl=True, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None)
UNTRUSTED = aiohttp.ClientConnectorCertificateError(KEY, ssl.SSLCertVerificationError("self-signed"))


@pytest.mark.parametrize(
    ("error", "unsent", "unanswered"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), NotSentError, NoAnswerError),
        (ConnectionResetError(errno.ECONNRESET, "reset"), NotSentError, NoAnswerError),
        (aiohttp.ServerDisconnectedError(), NotSentError, NoAnswerError),
        (aiohttp.ConnectionTimeoutError(), NotSentTimeoutError, NoAnswerTimeoutError),
        (TimeoutError(), NotSentTimeoutError, NoAnswerTimeoutError),
        (NoFreeConnectionError(), NotSentTimeoutError, NoAnswerTimeoutError),
    ],
)
def test_only_a_body_that_had_not_begun_proves_that_nothing_was_sent(
    error: Exception, unsent: type[Exception], unanswered: type[Exception]
) -> None:
    """Whether the write had begun decides between "not sent" and "no answer", never the class of the error."""
    assert unsent is type(failure(error, ADDRESS, begun=False))
    assert unanswered is type(failure(error, ADDRESS, begun=True))


@pytest.mark.parametrize("error", [UNTRUSTED, ssl.SSLCertVerificationError("expired")])
def test_a_bad_certificate_is_permanent(error: Exception) -> None:
    """A certificate that cannot be trusted is not tried again."""
    ended = failure(error, ADDRESS, begun=False)

    assert isinstance(ended, NotSentError)
    assert ended.permanent


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UNTRUSTED, "the certificate of the service cannot be trusted"),
        (aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "unknown")), "the host name does not resolve"),
        (aiohttp.ClientConnectorSSLError(KEY, OSError("cut")), "the TLS handshake failed"),
        (aiohttp.ClientPayloadError("Response payload is not completed"), "the answer was cut short"),
        (AnswerTooLargeError(), "the answer is longer than max_response_bytes"),
        (ConnectionResetError(errno.ECONNRESET, "any words"), "connection reset by peer"),
        (RuntimeError("anything"), "the connection failed"),
    ],
)
def test_each_failure_is_said_in_a_few_words(error: Exception, words: str) -> None:
    """The reason names what happened, and repeats no word of a foreign error."""
    assert words == phrase(error)

"""Whether the service itself wrote a response, or a gateway, a firewall or a cache on the way.

A page of such a hop says nothing about a request. If payasync took its 404 for the service's "not found", it would send
a refund twice.
"""

from typing import TYPE_CHECKING, Final

from payasync.strict_json import first_at

if TYPE_CHECKING:
    from payasync.wire.call import Call, Reply

RATE_LIMITED: Final = 429


def listed_meaning(call: "Call", reply: "Reply") -> str | None:
    """Return the key of the profile's `codes` that lists the result code, or else the message."""
    answer, codes = call.profile.answer, call.profile.codes
    values = [first_at(reply.document, paths) for paths in (answer.code, answer.message) if paths]
    return codes.meaning(call.operation.name, values) if values else None


def is_own(call: "Call", reply: "Reply") -> bool:
    """Return whether the service itself wrote a 4xx response.

    An unlisted code must have the JSON type of the codes of success. A code that is empty, or only repeats the HTTP
    status, is nobody's, because gateways write such codes, too. If the profile has no codes, each JSON object counts: a
    hop's cannot be told from the service's then.
    """
    profile = call.profile
    if reply.status in profile.http.uncoded or listed_meaning(call, reply) is not None:
        return True
    if not profile.answer.code:
        return isinstance(reply.document, dict)
    code, kinds = first_at(reply.document, profile.answer.code), map(type, profile.answer.ok or profile.codes.listed)
    return type(code) in kinds and str(code) not in {"", str(reply.status)}


def precedes_execution(call: "Call", reply: "Reply") -> bool:
    """Return whether a 429 says that the request was not executed: a hop may send one after the service's commit."""
    http = call.profile.http
    own = RATE_LIMITED in http.uncoded or listed_meaning(call, reply) is not None
    return http.rate_limit_precedes_execution and own


def says_absent(call: "Call", reply: "Reply") -> bool:
    """Return whether a response says by a listed code or message that there is no such order or refund.

    If that code repeats the HTTP status, a message or a signature must say it, too.
    """
    answer, codes = call.profile.answer, call.profile.codes
    found = [first_at(reply.document, paths) for paths in (answer.code, answer.message) if paths]
    saying = [value for value in found if codes.meaning(call.operation.name, [value]) == "absent"]
    return any(reply.verified or str(value) != str(reply.status) for value in saying)

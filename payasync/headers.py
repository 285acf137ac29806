"""Headers: what is one, and which of them only payasync itself sets."""

import re
from typing import Final

FRAMING: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that say where a message begins and ends, and when it is sent: another value could make it two messages,
or put off its body behind the proof that nothing was sent."""

_SENDER: Final = frozenset({"authorization", "cookie"})
_PROXY: Final = "proxy-"
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VISIBLE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


def is_header(name: object, value: object) -> bool:
    """Return whether a header is of visible ASCII, so that it cannot break the request apart."""
    texts = isinstance(name, str) and isinstance(value, str)
    return texts and bool(_TOKEN.fullmatch(str(name)) and _VISIBLE.fullmatch(str(value)))


def is_own(name: str) -> bool:
    """Return whether a profile cannot set a header: it says how the request is sent, or who sends it."""
    lower = name.lower()
    return lower in FRAMING or lower in _SENDER or lower.startswith(_PROXY)

"""A service of another dialect: it shares no code with payasync, and believes only what the `openssl` program does.

It signs nearly everything: RSA over the lower-case hex SHA-256 of the sorted pairs, in base64, on requests as on its
own answers, which stand in an envelope of `code`, `msg` and `data`, failures inside HTTP 200. Its states are numbers,
its request number is a header, and a nonce opens nothing twice.
"""

import base64
import hashlib
import itertools
import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from tests.foreign import signatures
from tests.foreign.recorder import Answer, Recorder, Request, answer

MERCHANT: Final = "M 7/ü"
BEARER: Final = "Bearer sk_other"

OK: Final = 0
BAD_FIELDS: Final = 4001
BAD_SIGNATURE: Final = 4002
NONCE_USED: Final = 4003
NUMBER_USED: Final = 4004
UNKNOWN_NUMBER: Final = 4005
UNLISTED: Final = 4999


class RefusedError(Exception):
    """What the service does not do; its code, its words, and its HTTP status."""

    def __init__(self, code: int, message: str, status: int = 200) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


@dataclass(frozen=True)
class Keys:
    """A pair of PEM files."""

    private: Path
    public: Path


def keys(folder: Path) -> Keys:
    """Return a new pair of RSA keys in a folder of their own."""
    folder.mkdir()
    return Keys(*signatures.rsa_keys(folder, owner=folder.name))


def digest(fields: Mapping[str, Any]) -> str:
    """Return what is signed: the hex SHA-256 of the sorted pairs."""
    texts = {
        name: json.dumps(value, separators=(",", ":"), ensure_ascii=False) if isinstance(value, dict) else str(value)
        for name, value in fields.items()
    }
    return hashlib.sha256(signatures.signed_text(texts).encode()).hexdigest()


def signed(fields: Mapping[str, Any], private: Path) -> dict[str, Any]:
    """Return fields with their `sign` behind them."""
    command = [signatures.OPENSSL, "dgst", "-sha256", "-sign", str(private)]
    made = subprocess.run(command, input=digest(fields).encode(), capture_output=True, check=True)
    return {**fields, "sign": base64.b64encode(made.stdout).decode()}


def verifies(fields: Mapping[str, Any], public: Path) -> bool:
    """Return whether the `sign` of fields is that of a key."""
    with tempfile.TemporaryDirectory() as folder:
        signature = base64.b64decode(fields["sign"], validate=True)
        return signatures.rsa_sha256_verifies(digest(fields), signature, public, Path(folder, "signature"))


SUBSCRIPTION: Final = {"cycle", "beginOn", "fee", "subscriber"}
WANTED: Final[Mapping[str, set[str]]] = {
    "POST /v1/payments": {"amount", "currency"},
    "POST /payment/unifiedorder": {"outTradeNo", "totalAmt", "currency", "backTo"},
    "POST /payment/orderquery": {"outTradeNo"},
    "POST /payment/closeorder": {"outTradeNo", "closeReason"},
    "POST /payment/refund": {"outTradeNo", "outRefundNo", "totalAmt", "refundAmt"},
    "GET /payment/status": {"orderNo"},
    "GET /payment/refund/status": {"X-Refund-No"},
    "POST /subscriptions/create": SUBSCRIPTION,
    "POST /subscriptions/update": {"agreementNo"},
    "POST /subscriptions/cancel": {"agreementNo"},
}
"""What each endpoint must be told, beyond what all must."""
SIGNED: Final = {"nonceStr", "sign"}
CONSTANTS: Final = {"signType": "RSA2", "version": "3"}


class Dialect(Recorder):
    """The service, which verifies what it received.

    Args:
        merchant: The merchant's public key.
        own: The service's private key.

    Attributes:
        own: It signs with this; another one, while keys rotate.
        tamper: What happens to an answer on its way.
    """

    def __init__(self, merchant: Path, own: Path) -> None:
        super().__init__()
        self.own = own
        self.tamper: Callable[[bytes], bytes] = bytes
        self._merchant = merchant
        self._nonces: set[str] = set()
        self._states: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def know(self, number: str, state: int) -> None:
        """Put an order, a refund or an agreement into a state."""
        self._states[number] = state

    def _recorded(self, request: Request) -> Answer:
        super()._recorded(request)
        try:
            status, document = 200, {"code": OK, "msg": "ok", "data": signed(self._done(request), self.own)}
        except RefusedError as error:
            status, document = error.status, {"code": error.code, "msg": error.message}
        trace = ("X-Trace-Id", f"trace-{next(self._numbers)}")
        return answer(status, self.tamper(json.dumps(document, separators=(",", ":")).encode()), trace)

    def _done(self, request: Request) -> dict[str, Any]:
        endpoint, sent = _received(request)
        self._authenticate(endpoint, request, sent)
        wanted = WANTED[endpoint] | CONSTANTS.keys() | {"merchantId"}
        if missing := sorted(wanted - sent.keys()):
            raise RefusedError(BAD_FIELDS, f"missing {', '.join(missing)}")
        wrong = {name for name, value in CONSTANTS.items() if str(sent[name]) != value}
        if wrong or sent["merchantId"] != MERCHANT or ["2027-01"] != request.header("X-Api-Version"):
            raise RefusedError(BAD_FIELDS, "not for this service")
        return self._moved(endpoint, sent)

    def _authenticate(self, endpoint: str, request: Request, sent: dict[str, Any]) -> None:
        """Let in who has the key: of the first endpoint the secret one, else the private one."""
        if endpoint == "POST /v1/payments":
            if [BEARER] != request.header("Authorization") or not SIGNED.isdisjoint(sent):
                raise RefusedError(BAD_SIGNATURE, "who are you?", 401)
            return
        if request.header("Authorization") or not sent.keys() >= SIGNED or not verifies(sent, self._merchant):
            raise RefusedError(BAD_SIGNATURE, "signature")
        if sent["nonceStr"] in self._nonces:
            raise RefusedError(NONCE_USED, "nonce")
        self._nonces.add(sent["nonceStr"])

    def _moved(self, endpoint: str, sent: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked, and return the payload of the answer."""
        match endpoint.rpartition("/")[2], sent:
            case "payments", _:
                return {"payNo": 70001, "payState": 20}
            case "unifiedorder", {"outTradeNo": str(number), "backTo": str(back)}:
                self._new(number, 0)
                return {"tradeNo": number, "state": 0, "payLink": f"https://gate.example/pay?no={number}&back={back}"}
            case "refund", {"outTradeNo": str(order), "outRefundNo": str(number)}:
                self._known(order)
                self._new(number, 7)
                return {"refundNo": number, "refundState": 7}
            case "create", {"beginOn": "31/01/2027", "subscriber": {"email": str(email)}}:
                self._new("A1", 0)
                return {"agreementNo": "A1", "phase": 0, "subscriber": {"email": email, "since": [2027, 1]}}
            case what, _:
                return self._about(what, sent)

    def _about(self, what: str, sent: dict[str, Any]) -> dict[str, Any]:
        """Do what is about something that there must be."""
        match what, sent:
            case "closeorder", {"outTradeNo": str(number), "closeReason": "merchant"}:
                self._known(number)
                self._states[number] = 9
                return {"tradeNo": number, "state": 9, "note": ""}
            case "orderquery", {"outTradeNo": str(number)}:
                return {"tradeNo": number, "state": self._known(number)}
            case "status", {"orderNo": str(number)}:
                return {"payNo": number, "payState": self._known(number)}
            case "status", {"X-Refund-No": str(number)}:
                return {"refundNo": number, "refundState": self._known(number)}
            case "update" | "cancel", {"agreementNo": str(number)}:
                self._known(number)
                return {"agreementNo": number, "phase": 1 if what == "update" else 3}
            case _:
                raise RefusedError(BAD_FIELDS, "what is it?")

    def _new(self, number: str, state: int) -> None:
        if number in self._states:
            raise RefusedError(NUMBER_USED, f"{number} was used before")
        self._states[number] = state

    def _known(self, number: str) -> int:
        if number not in self._states:
            raise RefusedError(UNKNOWN_NUMBER, f"no {number}")
        if self._states[number] < 0:
            raise RefusedError(UNLISTED, "not today")
        return self._states[number]


def _received(request: Request) -> tuple[str, dict[str, Any]]:
    """Return which endpoint it is, and all fields, wherever they stand."""
    sent = signatures.fields(request) if request.body or request.query else {}
    path = request.path.removeprefix("/gate")
    if path.startswith("/payment/status/"):
        path, sent["orderNo"] = "/payment/status", unquote(path.rpartition("/")[2])
    if number := request.header("X-Refund-No"):
        (sent["X-Refund-No"],) = number
    return f"{request.method} {path}", sent

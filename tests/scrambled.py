"""A service with an unknown profile: it is drawn from a seed, and differs from the sandbox's own in every point.

A test that passes with it does not depend on a name, a code, a place or an option of the sandbox's own profile.
The structure is drawn, too. It includes the envelope, the type of codes, the signatures and the status of failures,
the compared fields, and the way in which notifications are signed.
"""

import json
import random
from typing import Any, Final

from attrs import evolve

from payasync import (
    Accept,
    AnswerShape,
    Auth,
    Endpoint,
    HttpCodes,
    NotificationShape,
    Parameter,
    Profile,
    Recovery,
    ResultCodes,
    SandboxShape,
    SortedPairs,
    States,
)
from payasync.endpoints import OPERATIONS
from payasync.profile.schema import CODE_LISTS, Code
from payasync.profile.wire_names import COMPARED
from payasync.sandbox import PROFILE
from payasync.signing.schemes import FREE_TEXT

SYLLABLES: Final = ("ba", "co", "du", "fe", "gi", "lo", "mu", "ne", "pi", "ra", "su", "to", "vi", "xe", "zo")
NOT_SHOWN: Final = tuple(operation.name for operation in OPERATIONS[5:])
SIGNED: Final = tuple(operation.name for operation in OPERATIONS[1:5])


def scrambled(seed: object) -> Profile:
    """Return the profile of a seed; equal seeds give equal profiles."""
    return Draw(seed).profile()


class Draw:
    """Draws the parts of one profile; no name occurs twice.

    Args:
        seed: Makes the draws repeatable.
    """

    def __init__(self, seed: object) -> None:
        self._seed = seed
        self._chance = random.Random(str(seed))  # noqa: S311 - it guards nothing, and is the same every time
        self._drawn = set[str]()
        self._texts = self._coin()

    def profile(self) -> Profile:
        """Return all parts together."""
        fields = {point: self._name() for point in PROFILE.fields}
        places = self._chance.sample(["path", "header"], 2)
        given: dict[str, Any] = {
            "name": f"scrambled-{self._seed}",
            "bearer": ["payments.create", *self._some((*SIGNED, *NOT_SHOWN))],
            "signed": [*SIGNED, *NOT_SHOWN, *(["payments.create"] if self._coin() else [])],
            "merchant": [*SIGNED, *self._some(NOT_SHOWN)],
            "identifier": self._one("[A-Z0-9]{2,32}", "[A-Z][A-Z0-9_]{0,40}"),
            "amount_unit": "major",
            "signature": self._signature(fields["return_url"]),
            "endpoints": {query: Endpoint(number="merchant") for query in ("orders.query", "refunds.status")},
            "fields": fields,
            "formats": {"start_date": self._one("%d.%m.%Y", "%Y%m%d", "%m/%d/%Y")},
            "constants": {
                "*": {self._name(): self._name(), self._name(): self._chance.randrange(100)},
                "orders.place": {self._name(): {self._name(): [1, self._name()]}},
            },
            "headers": {f"X-{self._name()}": self._name()},
            "auth": self._auth(),
            "accept": self._accept(),
            "payment_status": self._parameter(places[0]),
            "refund_status": self._parameter(places[1]),
            "answer": self._answer(),
            "states": self._states(),
            "codes": ResultCodes(**dict[str, Any]((name, self._codes(2)) for name in CODE_LISTS)),
            "http": HttpCodes(
                not_executed=() if self._coin() else HttpCodes().not_executed,
                absent=(),
                duplicate=(self._one(410, 412, 423),),
            ),
            "recovery": Recovery(quarantine=0.5),
            "notification": self._notification(),
        }
        # Nobody believes what a signature leaves out.
        if given["answer"].signature or given["notification"].verification == "body":
            given["signature"] = evolve(given["signature"], nested="json")
        given["sandbox"] = self._sandbox(given["codes"])
        return Profile(**given)

    def _signature(self, return_url: str) -> SortedPairs:
        algorithm = self._one("md5", "hmac-md5", "hmac-sha512", "rsa-sha256", "rsa-sha512", "ed25519")
        symmetric = not algorithm.startswith(("rsa", "ed"))
        options: dict[str, Any] = {"algorithm": algorithm, "encoding": self._one("HEX", "base64")}
        return SortedPairs(
            **options,
            separator=self._one("|", ";", "~~", "\n"),
            exclude=("sign", self._name()),
            skip_empty=False,
            key_param=self._name() if symmetric else "",
            append_path=True,
            prehash="sha256",
            skip_null=False,
            booleans="json",
            numbers="text",
            nested=self._one("json", "omit"),
            allow_delimiters=(*FREE_TEXT, return_url),
        )

    def _auth(self) -> Auth:
        return Auth(
            header=self._one("authorization", f"X-{self._name()}"),
            value=self._one(
                "Basic {basic}", "Basic {basic_user}", "{secret_key}", f"{self._name()} {{public_key}}/{{secret_key}}"
            ),
            headers={f"X-{self._name()}": self._one("{public_key}", "{merchant_id}", "{basic}")},
        )

    def _accept(self) -> Accept:
        return Accept(
            currency=("CAD", "USD", "JPY"),
            scene_type=("JSAPI", self._name()),
            amount=(1, 10**9),
            required={"orders.place": ("subject", "scene_type"), "refunds.create": ("refund_desc",)},
            length={"subject": 30, "refund_desc": 20},
        )

    def _answer(self) -> AnswerShape:
        head = self._one("", self._name())
        data = self._one("", self._name(), f"{self._name()}.{self._name()}")
        signature = self._one("", self._name(), self._inside(data), self._inside(data))
        code = self._inside(head)
        # A signed object without the code could be a request sent back: of the service's word it says nothing.
        tells = self._coin() and code.startswith(signature.rpartition(".")[0])
        return AnswerShape(
            data=data,
            code=code,
            ok=self._codes(2),
            message=self._inside(head),
            request_id=self._one(f"header:X-{self._name()}", self._inside(head)),
            signature=signature,
            refusals_signed=tells if signature else None,
            **self._places(),
            **{point: self._one(None, "", self._inside(self._one("", self._name()))) for point in COMPARED},
        )

    def _places(self) -> dict[str, Any]:
        return {point: self._inside(self._one("", self._name())) for point in _TOLD}

    def _states(self) -> States:
        tables: dict[str, Any] = {
            thing: {state: self._codes(self._one(1, 2)) for state in getattr(PROFILE.states, thing)}
            for thing in _THINGS
        }
        return States(**tables)

    def _notification(self) -> NotificationShape:
        own, data = PROFILE.notification, self._one("", self._name())
        style = self._one("body", "standard-webhooks")
        kind, time = (self._one("", self._name(), f"{self._name()}.{self._name()}") for _ in range(2))
        given: dict[str, Any] = {"verification": style, "signature": self._inside(data) if style == "body" else ""}
        if style == "body" and time:
            time = self._inside(data)  # beside what is signed it would say nothing
        return NotificationShape(
            **given,
            data=data,
            kind=kind,
            kinds={kind: tuple(self._name() for _ in names) for kind, names in own.kinds.items()},
            time=time,
            tolerance=self._one(60, 600),
            out_trade_no=self._name(),
            out_refund_no=self._name(),
            subscription_id=self._name(),
            volatile=["nonceStr", *([time] if time else [])] if style == "body" else [],
            ack_status=self._one(201, 202),
            ack_body=self._one(self._name(), json.dumps({self._name(): self._name()})),
            nack_status=418,
            nack_body=self._name(),
        )

    def _sandbox(self, codes: ResultCodes) -> SandboxShape:
        invalid, wrong_state = codes.not_executed
        of_keys = dict(zip(("unauthenticated", "bad_signature"), codes.unauthenticated, strict=True))
        of_orders = {"invalid": invalid, "refund_mismatch": invalid, "wrong_state": wrong_state}
        return SandboxShape(
            redelivery=(7, 400, 2000),
            order_expiry=2400,
            codes={**of_keys, **of_orders, "already_paid": wrong_state, "nonce_used": codes.duplicate[1]},
            constants={self._name(): self._name(), self._name(): self._chance.randrange(100)},
        )

    def _parameter(self, place: Any) -> Parameter:
        return Parameter(f"X-{self._name()}" if place == "header" else self._name(), place)

    def _codes(self, count: int) -> tuple[Code, ...]:
        return tuple(self._name().upper() if self._texts else self._number() for _ in range(count))

    def _number(self) -> int:
        while str(number := self._chance.randrange(1, 100_000)) in self._drawn:
            pass
        self._drawn.add(str(number))
        return number

    def _name(self) -> str:
        while (name := "".join(self._chance.choices(SYLLABLES, k=4))) in self._drawn:
            pass
        self._drawn.add(name)
        return name[:4] + name[4:].capitalize()

    def _inside(self, place: str) -> str:
        return f"{place}.{self._name()}" if place else self._name()

    def _some(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if self._coin()]

    def _one(self, *given: Any) -> Any:
        return self._chance.choice(given)

    def _coin(self) -> bool:
        return self._chance.random() < 1 / 2


_THINGS: Final = ("order", "payment", "refund", "subscription")
_TOLD: Final = ("payment_id", "redirect_url", "subscription_id", *(f"{thing}_status" for thing in _THINGS))

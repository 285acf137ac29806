"""Which groups of methods a profile is ready for, and what the others still need."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from attrs import frozen

from payasync.profile.audit import Point, takers_of
from payasync.profile.profile import Profile
from payasync.profile.schema import KINDS
from payasync.profile.signed_fields import key_owner, merchant_places, notification_coverage, signs_merchant
from payasync.profile.wire_names import SOUGHT, unaskable, wire_name

Group: TypeAlias = Literal["payments", "orders", "refunds", "subscriptions", "recovery", "notifications"]
"""Methods, or other things, that a profile makes ready together."""

_CODE: Final = "the result code"
_SIGNED: Final = "request signatures"
_ABSENT: Final = "'not found'"
_SIGNATURE: Final = "its signature"
_DUPLICATES: Final = "duplicates"
_SIGNING: Final = ("signature.algorithm", "signature.encoding")
_SUBSCRIPTION: Final = ("frequency", "subscription_amount", "start_date", "customer", "subscription_id")
_CALLS: Final[Mapping[str, tuple[str, ...]]] = {_CODE: (), _SIGNED: _SIGNING}
"""What each group of methods needs."""
_FIND: Final = {f"how to find {write}": (query,) for query, (write, _) in SOUGHT.items()}
"""By what recovery needs, the query that it asks by the merchant's number."""
_NEEDS: Final[Mapping[Group, Mapping[str, tuple[str, ...]]]] = {
    "payments": {
        **_CALLS,
        "how to query it": ("payment_status",),
        "its states": ("answer.payment_status", "states.payment"),
    },
    "orders": {
        **_CALLS,
        "its payment page": ("answer.redirect_url",),
        "its states": ("answer.order_status", "states.order"),
    },
    "refunds": {
        **_CALLS,
        "how to query it": ("refund_status",),
        "its states": ("answer.refund_status", "states.refund"),
    },
    "subscriptions": {
        **_CALLS,
        "its fields": (*(f"fields.{name}" for name in _SUBSCRIPTION), "formats.start_date"),
        "its number, states": ("answer.subscription_id", "answer.subscription_status", "states.subscription"),
    },
    "recovery": {
        _ABSENT: (),
        "when it is final": ("recovery.quarantine", "answer.refusals_signed"),
        "how to query": ("refund_status", *_SIGNING),
        **dict.fromkeys(_FIND, ()),
    },
    "notifications": {"verification": ("notification.verification",), "acknowledgement": ("notification.ack_status",)},
}
"""What each group needs, the most urgent first, and the points that say it."""
_OF_KIND: Final[Mapping[str, tuple[str, ...]]] = {
    "payment": ("notification.out_trade_no", "answer.order_status", "states.order"),
    "refund": ("notification.out_refund_no", "refund_status", "answer.refund_status", "states.refund"),
}
"""By kind of notification, the points that a confirmation needs."""
_PROOFS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "body": {_SIGNATURE: ("notification.signature", *_SIGNING), _DUPLICATES: ()},
    "header": {_SIGNATURE: _SIGNING, _DUPLICATES: ()},
    "none": {"how to confirm it": (*_OF_KIND["payment"], *_OF_KIND["refund"], *_SIGNING), **dict.fromkeys(_FIND, ())},
}
"""What notifications need besides, by how they are verified. Other ones are identified by `webhook-id` or a query."""
_QUERIES: Final = dict(zip(_OF_KIND, SOUGHT, strict=True))
"""By kind of notification, the query that confirms it."""
_KEYS: Final = {"payment_status": "status.payment.name", "refund_status": "status.refund.name"}


@frozen
class Missing:
    """One thing that a group still needs.

    Attributes:
        thing: What it is.
        keys: The keys to give, as TOML writes them.
    """

    thing: str
    keys: tuple[str, ...]


@frozen
class Readiness:
    """Whether a profile says all that a group needs.

    Attributes:
        group: The group.
        missing: What is missing, the most urgent first; at most one for each thing that it needs.
        begun: Whether the profile says something that only this group needs.
    """

    group: Group
    missing: tuple[Missing, ...]
    begun: bool

    @property
    def ready(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


_IF_SHARED: Final = 'If all merchants share the key, set signature.service_key = "shared"'


def inspect_groups(profile: Profile) -> tuple[Readiness, ...]:
    """Return what each group still needs.

    A group of methods is ready if each method can be called, and the state of its payment, order, refund or
    subscription is known. Recovery is ready if a lost write can be found, and is sent again if the service does not
    know it. Notifications are ready if a genuine one is recognised, or else confirmed by a query, and a redelivery is
    recognised as a duplicate, whatever else has changed in it.
    """
    points = {point.name: point for point in profile.audit()}
    return tuple(
        Readiness(group, tuple(_list_missing(profile, group, points)), _is_begun(profile, group, points))
        for group in _NEEDS
    )


def notification_facts(profile: Profile) -> Iterator[tuple[str, str]]:
    """Yield what binds each kind of notification to this merchant, and what is done with each of its two times.

    There is nothing to say as long as the profile does not say how notifications, or the text that is signed, are
    verified.
    """
    shape, (whose, is_given), coverage = profile.notification, key_owner(profile), notification_coverage(profile)
    if not shape.verification or not (whose or shape.verification == "none"):
        return
    paths = [path for path in merchant_places(profile) if coverage is None or coverage.covers(path)]
    sharing = "all merchants share its key" if is_given else "all merchants share its key (assumed)"
    for kind in _kinds_sent(profile) or KINDS:
        query = _QUERIES.get(kind, "")
        asks = query and getattr(shape, SOUGHT[query][1]) and not unaskable(profile, query)
        hint = "payasync asks the service" if asks else "it is parked, because no query confirms it"
        if shape.verification == "none":
            yield kind, f"not signed, so nothing binds it to this merchant: {hint}"
        elif whose == "merchant":
            given = "" if is_given else f" (assumed). {_IF_SHARED}"
            yield kind, f"bound to this merchant by its key, which no other merchant has{given}"
        elif signs_merchant(shape):
            yield kind, "bound to this merchant by its number, which is in the signed text"
        elif paths:
            yield kind, f"{sharing}: bound to this merchant by {' or '.join(paths)}, if the event has it; else {hint}"
        else:
            yield kind, f"{sharing}, and nothing signed names this merchant: {hint}"
    places = shape.merchant_id, shape.out_trade_no, shape.out_refund_no, shape.subscription_id, *shape.tells.values()
    for path in (*places, *shape.must, *(each for paths in shape.id.values() for each in paths)):
        if path and shape.data and path.startswith(f"{shape.data}."):
            yield path, f"means {shape.data}.{path}. If there is no such value, leave out {shape.data} and its dot"
    in_header = shape.verification in {"header", "standard-webhooks"} and shape.headers.timestamp
    judged = "" if shape.verification == "none" else in_header or shape.time
    rule = f"the time of the delivery, new in each, and at most {shape.tolerance} seconds off"
    yield "time", f"{judged} is {rule}" if judged else f"not judged. notification.time is for {rule}"
    yield "event_time", f"{shape.event_time or 'not given'}: the event's own time, which is shown and never judged"


def optional_points(profile: Profile) -> tuple[Point, ...]:
    """Return the open points that no group needs."""
    needed = {key for each in inspect_groups(profile) for missing in each.missing for key in missing.keys}
    open_points = (point for point in profile.audit() if point.status == "open")
    return tuple(point for point in open_points if not _is_among(key_of(point.name), needed))


def key_of(name: str) -> str:
    """Return the key of a point, as TOML writes it."""
    return _KEYS.get(name, name)


def _is_among(name: str, keys: Iterable[str]) -> bool:
    """Return whether one of the keys is a point's own, or stands in its table."""
    return any(f"{key}.".startswith(f"{name}.") for key in keys)


def _list_missing(profile: Profile, group: Group, points: Mapping[str, Point]) -> Iterator[Missing]:
    proofs = _PROOFS.get(profile.notification.verification, {}) if group == "notifications" else {}
    for thing, names in {**_NEEDS[group], **proofs}.items():
        open_points = (points[name] for name in names if name in points and points[name].status == "open")
        needed = (point.name for point in open_points if _is_needed(profile, group, thing, point))
        find = {_CODE: _keys_of_code, _ABSENT: _keys_of_absent, _DUPLICATES: _keys_of_duplicates}.get(thing)
        keys = find(profile) if find else map(key_of, needed)
        number = (f'endpoints."{each}".number' for each in _FIND.get(thing, ()) if unaskable(profile, each))
        if missing := (*keys, *number):
            yield Missing(thing, missing)


def _is_needed(profile: Profile, group: Group, thing: str, point: Point) -> bool:
    """Return whether a group needs an open point, given what the profile says of others."""
    if point.name not in _SIGNING:
        return not _is_given(profile, point.name) and not (group == "notifications" and _is_never_sent(profile, point))
    methods = tuple(SOUGHT) if group in {"recovery", "notifications"} else (f"{group}.",)
    return thing == _SIGNATURE or any(name.startswith(methods) for name in point.needed_by)


def _is_never_sent(profile: Profile, point: Point) -> bool:
    """Return whether a point is for a kind of notification that the profile, which tells kinds, does not have."""
    sent = _kinds_sent(profile)
    return bool(sent) and any(point.name in names for kind, names in _OF_KIND.items() if kind not in sent)


def _kinds_sent(profile: Profile) -> list[str]:
    """Return the kinds of notifications that the profile tells apart; empty if only their addresses do."""
    shape = profile.notification
    return [kind for kind in KINDS if kind in shape.kinds or kind in shape.tells]


def _keys_of_code(profile: Profile) -> Iterator[str]:
    """Yield the key without which nothing reads the codes of `answer.ok`, so that a refusal in a 2xx is a success."""
    if profile.answer.ok and not profile.answer.code:
        yield "answer.code"


def _keys_of_duplicates(profile: Profile) -> Iterator[str]:
    """Yield the keys without which only a hash of the body identifies an event: a redelivery may differ in it."""
    given, sent = profile.notification.id, _kinds_sent(profile)
    if not sent and not given:
        yield "notification.id"
    yield from (f"notification.id.{kind}" for kind in sent if kind not in given)


def _keys_of_absent(profile: Profile) -> Iterator[str]:
    """Yield the key by which "not found" is recognised, if it is not yet. A status alone proves nothing."""
    codes, coded = profile.codes, profile.answer.code or profile.answer.message
    listed = codes.absent or all(codes.by_operation.get(each, {}).get("absent") for each in SOUGHT)
    if not listed:
        yield "codes.absent"
    elif not coded:
        yield "answer.code"


def _is_given(profile: Profile, name: str) -> bool:
    """Return whether an open point has a value: one without effect yet, or each name that a call must have."""
    section, _, key = name.partition(".")
    if section == "fields":
        required = [(method, each) for method, each in takers_of(key).items() if each.required]
        return bool(required) and all(wire_name(profile, *each) for each in required)
    value: Any = getattr(getattr(profile, section), key, None) if section in {"answer", "states", "recovery"} else None
    return value not in (None, {}, "")


def _is_begun(profile: Profile, group: Group, points: Mapping[str, Point]) -> bool:
    """Return whether a profile says something that only this group needs, even if it has no effect yet."""
    if group == "recovery":
        return profile.recovery.quarantine is not None
    if group == "notifications":
        return profile.notification != type(profile.notification)()
    own = {name for names in _NEEDS[group].values() for name in names if not name.startswith("signature.")}
    return any(points[name].status == "answered" or _is_given(profile, name) for name in own)

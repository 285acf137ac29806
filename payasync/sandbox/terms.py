"""What a sandbox's owner may choose about refunds."""

from datetime import timedelta
from typing import Final, Literal, TypeAlias, get_args

from attrs import frozen

from payasync.errors import ConfigurationError

RefundSetting: TypeAlias = Literal["succeed", "fail", "by hand"] | timedelta
"""How a refund ends: at once, one way or the other; when the test says so; or with success after a time."""
RepeatedSetting: TypeAlias = Literal["same", "refused"]
"""What the number of a refund means when the same request comes again: that refund, or a refusal."""

_ENDS: Final[dict[object, Literal["succeeded", "failed"]]] = {"succeed": "succeeded", "fail": "failed"}
_BY_HAND: Final = "by hand"


@frozen(kw_only=True)
class RefundTerms:
    """How refunds end, and what their numbers mean.

    Attributes:
        outcome: How a refund ends at once; `None`: not at once.
        after: When it succeeds, counted from the request; `None`: not by itself.
        once: A number is taken once only, the same request included.
    """

    outcome: Literal["succeeded", "failed"] | None = "succeeded"
    after: timedelta | None = None
    once: bool = False


AT_ONCE: Final = RefundTerms()


def refund_terms(refunds: RefundSetting = "succeed", repeated: RepeatedSetting = "same") -> RefundTerms:
    """Return the terms that two settings mean.

    Raises:
        ConfigurationError: One of them means none.
    """
    if repeated not in get_args(RepeatedSetting):
        raise ConfigurationError(
            f'repeated_refunds must be "same" or "refused", not {repeated!r}', field="repeated_refunds"
        )
    after = refunds if isinstance(refunds, timedelta) else None
    if (after is not None and after <= timedelta()) or (after is None and refunds not in (*_ENDS, _BY_HAND)):
        rule = f'"succeed", "fail", "{_BY_HAND}", or a timedelta above 0'
        raise ConfigurationError(f"refunds must be {rule}, not {refunds!r}", field="refunds")
    return RefundTerms(outcome=None if after else _ENDS.get(refunds), after=after, once=repeated == "refused")

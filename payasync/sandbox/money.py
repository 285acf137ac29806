"""Amounts as a customer reads them."""

from typing import Final

from payasync.sandbox.values import Order

_DIGITS: Final = {
    **dict.fromkeys(("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF"), 0),
    **dict.fromkeys(("UGX", "VND", "VUV", "XAF", "XOF", "XPF"), 0),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
}
"""Currencies whose smallest unit is not a hundredth."""


def shown(order: Order, unit: str) -> str:
    """Return an order's amount with its currency.

    Args:
        order: Whose amount is an integer.
        unit: `major` where that counts whole units of the currency, else the smallest ones.
    """
    return amount(order.total_amt, order.currency, unit)


def amount(count: int, currency: str, unit: str) -> str:
    """Return an amount with its currency.

    Args:
        count: So many units.
        currency: Its code.
        unit: `major` where whole units of the currency are counted, else the smallest ones are.
    """
    currency = currency.upper()
    digits = 0 if unit == "major" else _DIGITS.get(currency, 2)
    whole, rest = divmod(count, 10**digits)
    return f"{whole:,}.{rest:0{digits}} {currency}" if digits else f"{whole:,} {currency}"

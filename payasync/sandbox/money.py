"""Amounts as a customer reads them."""

from typing import Final

from payasync.sandbox.values import Order

_WHOLE: Final = frozenset("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF".split())
_THOUSANDTHS: Final = frozenset("BHD IQD JOD KWD LYD OMR TND".split())


def shown(order: Order, unit: str) -> str:
    """Return an order's amount with its currency.

    Args:
        order: Whose amount is an integer.
        unit: `major` where that counts whole units of the currency, else the smallest ones.
    """
    currency = order.currency.upper()
    digits = 0 if unit == "major" or currency in _WHOLE else 3 if currency in _THOUSANDTHS else 2
    whole, rest = divmod(order.total_amt, 10**digits)
    return f"{whole:,}.{rest:0{digits}} {currency}" if digits else f"{whole:,} {currency}"

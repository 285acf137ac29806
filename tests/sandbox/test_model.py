"""Amounts as a customer reads them."""

import pytest

from payasync.sandbox.model import format_amount


@pytest.mark.parametrize(
    ("amount", "currency", "unit", "expected"),
    [
        (450, "CAD", "minor", "4.50 CAD"),
        (5, "cad", "", "0.05 CAD"),
        (123_456_789, "USD", "minor", "1,234,567.89 USD"),
        (450, "JPY", "minor", "450 JPY"),
        (1005, "KWD", "minor", "1.005 KWD"),
        (450, "CAD", "major", "450 CAD"),
    ],
)
def test_shown(amount: int, currency: str, unit: str, expected: str) -> None:
    """An amount is shown with two decimals, or as its currency or the profile's unit requires."""
    assert expected == format_amount(amount, currency, unit)

"""Middleware is a fold: each layer gets the rest of the way as its `send`."""

from collections.abc import Iterable
from functools import reduce

from payasync.calls import Layer, Send


def chain(layers: Iterable[Layer], send: Send) -> Send:
    """Return the way through all layers, the first of them outermost."""
    return reduce(_around, reversed(tuple(layers)), send)


def _around(inner: Send, layer: Layer) -> Send:
    return lambda call: layer(call, inner)

"""The layers between a call and the wire, each of them `async def layer(call, send)`.

Outermost first: retry, the user's own, nonce, sign, authorize, observe.
"""

"""The layers between a call and the wire, each of them `async def layer(call, send)`.

Outermost first: journal, retry, verify, the user's own, nonce and sign, authorize, observe.
"""

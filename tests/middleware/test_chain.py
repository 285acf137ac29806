from payasync.calls import Call, Layer, Reply, Send
from payasync.middleware.chain import chain
from payasync.operations import CREATE_PAYMENT
from tests.building import bare_call, reply, way


def marking(name: str, seen: list[str]) -> Layer:
    """Return a layer that says when it is entered and left."""

    async def layer(call: Call, send: Send) -> Reply:
        seen.append(f"{name} in")
        answer = await send(call.with_fields(**{name: True}))
        seen.append(f"{name} out")
        return answer

    return layer


async def test_the_first_layer_is_outermost() -> None:
    """A call goes through the layers in order, and its reply back through them."""
    seen: list[str] = []
    end = way()
    await chain([marking("a", seen), marking("b", seen)], end.send)(bare_call(CREATE_PAYMENT))

    assert ["a in", "b in", "b out", "a out"] == seen
    assert {"a": True, "b": True} == end.calls[0].fields


async def test_a_layer_may_send_again_or_not_at_all() -> None:
    """Each layer has the whole rest of the way in its hands."""
    end = way(reply({"n": 1}), reply({"n": 2}))

    async def twice(call: Call, send: Send) -> Reply:
        await send(call)
        return await send(call)

    async def never(call: Call, send: Send) -> Reply:  # noqa: ARG001 - the shape of a layer
        return reply({"n": 0})

    again = await chain([twice], end.send)(bare_call(CREATE_PAYMENT))
    stopped = await chain([never, twice], end.send)(bare_call(CREATE_PAYMENT))

    assert {"n": 2} == again.document
    assert {"n": 0} == stopped.document
    assert 2 == len(end.calls)


async def test_no_layer_is_the_way_itself() -> None:
    """An empty chain adds nothing; any iterable will do."""
    end = way(reply({"n": 1}))

    assert end.send == chain(iter(()), end.send)
    assert {"n": 1} == (await chain([], end.send)(bare_call(CREATE_PAYMENT))).document

"""Bytes out, bytes in: the only room of the client that imports aiohttp."""

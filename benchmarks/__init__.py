"""What payasync costs beside aiohttp written by hand: `nox -s bench`."""

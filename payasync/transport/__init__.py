"""HTTP by aiohttp: connection pools, deadlines, and one attempt of a call."""

"""payasync: an asyncio-native client SDK of a payment service."""

__version__ = "0.1.0"

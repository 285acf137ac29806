"""Requests, calls and responses: names, JSON, encoding, and whether a response matches its request."""

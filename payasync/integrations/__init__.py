"""payasync inside of other frameworks: one file for each, standing on an extra of its name."""

"""What a response says, and on which grounds it is believed: decisions only, no I/O."""

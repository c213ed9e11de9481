"""Event sources, which others own and we only read, and sinks, to which we publish our own events."""

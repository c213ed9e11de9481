"""Event sources, which others own and we only read; and sinks, which our own events are published to."""

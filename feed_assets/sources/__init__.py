"""Facts in: event tables that others own, read only; and where our own events are published to besides."""

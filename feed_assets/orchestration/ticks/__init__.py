"""The sensors, each a list of steps."""

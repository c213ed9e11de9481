"""What ticks: the sensors, each a list of steps."""

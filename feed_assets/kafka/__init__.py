"""Topics become files that never change, and a signal for each. Needs the extra `kafka`."""

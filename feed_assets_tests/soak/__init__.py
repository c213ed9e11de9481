"""The loop under fire: a small project, the servers that run it, and an oracle that judges the result."""

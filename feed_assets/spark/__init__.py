"""Spark: one session, reading of pinned files that loses no record silently, and writing that counts all rows."""

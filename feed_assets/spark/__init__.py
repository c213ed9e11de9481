"""Spark: one session, reads of pinned files that lose no record silently, and writes that count all rows."""

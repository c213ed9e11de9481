"""Spark: one session, pinned reading that loses nothing in silence, and writing that leaves nothing uncounted."""

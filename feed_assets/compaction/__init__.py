"""Compaction: many small files are merged into few large ones with the same rows. No consumer runs because of it."""

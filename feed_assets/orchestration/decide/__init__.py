"""Decisions: which datasets read which, which partitions are due, and which runs to request."""

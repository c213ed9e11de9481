"""Decisions: which datasets read which, what is due, and which runs are requested."""

"""Warm runs: forks of a process that has already loaded the code location."""

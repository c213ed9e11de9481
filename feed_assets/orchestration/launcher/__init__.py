"""Runs begun warm: forks of a process that has loaded the code location."""

"""Execution of Dagster runs: the assets, their makers, and their reports."""

"""Execution of Dagster runs: assets, makers of rows, and reports to Dagster."""

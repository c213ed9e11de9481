"""Intake: makes batches of appendable feeds from data that others send or offer. No module here imports Dagster."""

"""Intake: makes batches of appendable feeds from data that others push or offer. No module here imports Dagster."""

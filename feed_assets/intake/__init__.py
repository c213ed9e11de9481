"""Intake makes batches of appendable feeds from events that partners push and from files that they provide.

No module here imports Dagster.
"""

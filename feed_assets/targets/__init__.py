"""Compute targets: questions about what is free there, within bounds of time and bytes."""

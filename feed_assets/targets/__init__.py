"""Probes of compute targets: their free resources, read within limits of time and bytes."""

"""Probes of compute targets: they read what is free there, within limits of time and bytes."""

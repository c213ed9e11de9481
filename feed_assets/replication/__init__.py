"""Replication: other data centers get whole updates of datasets, under the same ids and verified."""

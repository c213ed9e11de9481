"""Subscriptions: each change of a dataset is delivered to a target at least once, in order for each partition."""

"""Impressions and clicks of ads, and how effective they were."""

"""Declarations of users, as values and as specs of assets; nothing here decides, requests or runs."""

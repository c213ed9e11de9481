"""Invoices of a web shop, and what a day of them came to."""

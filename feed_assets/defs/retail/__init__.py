"""Invoices of a web shop, and their daily totals."""

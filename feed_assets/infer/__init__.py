"""Declarations of foreign feeds, made from sample files."""

"""A history in words, tables and JSON."""

"""Runs in time: what changed, when, and by how much."""

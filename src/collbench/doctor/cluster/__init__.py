"""Checks of a cluster, from where jobs are submitted: not of this machine."""

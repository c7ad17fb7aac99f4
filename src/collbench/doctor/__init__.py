"""Checks of the machine: one file each, with cause, effect and fix."""

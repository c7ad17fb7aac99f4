"""The part that must be right: gate, clock, operation, clock."""

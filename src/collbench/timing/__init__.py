"""Taking times: gate, clock, operation, clock."""

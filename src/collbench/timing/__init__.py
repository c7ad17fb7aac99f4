"""Taking times: ranks line up, clock, operation, clock."""

"""The judgement of a gate: each planned cell of two sides is a loss, no loss, or not answered, with the reason."""

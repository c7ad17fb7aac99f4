"""`collbench doctor`: placeholder until the checks exist."""

"""What one rank does with a list of cases."""

"""What checks are made of. Checks themselves are the modules beside this package."""

"""What backends are made of. Backends themselves are the modules beside this package."""

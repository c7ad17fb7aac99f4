"""What several checks share. The checks themselves are the modules beside this package."""

"""The plots of a report: one file, one kind. Each returns `Figure` values; none knows HTML."""

"""What a run means: statistics, comparisons, advice. Knows records and nothing that measures."""

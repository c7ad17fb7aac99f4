"""What a paper published, and a run in its words: `reference`, `cells`, `conclusions`."""

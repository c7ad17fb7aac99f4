"""What `collbench gate` consists of: its sides, its plans, its launches in turns, and what it writes."""

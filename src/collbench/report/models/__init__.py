"""What `collbench model` prints."""

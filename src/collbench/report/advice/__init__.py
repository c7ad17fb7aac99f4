"""What `collbench advise` prints."""

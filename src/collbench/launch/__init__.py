"""Places ranks on hosts and in containers, and starts them."""

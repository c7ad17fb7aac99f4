"""GPUs as the backends use them: memory that is not the host's, a stream, copies, events, graphs."""

"""The shared vocabulary, frozen: what both towers know. No MPI, no torch, no CuPy below this point."""

"""MPI libraries, through mpi4py and by the addresses of their functions."""

"""collbench: measure how deep-learning and HPC jobs communicate."""

__version__ = "0.1.0"

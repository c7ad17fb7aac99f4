"""collbench: measure how deep-learning and HPC jobs communicate.

`load`, `compare` and `advise` read runs: docs/python.md.
"""

from importlib import import_module

__version__ = "0.1.0"
__all__ = ("__version__", "advise", "compare", "load")


def __getattr__(name: str) -> object:
    """What reads runs is imported when it is first used: ranks do not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.api"), name)

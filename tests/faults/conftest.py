"""Long tests of faults share the engine and the launches of tests/containers."""

from tests.containers.conftest import clean, engine, launch, started

__all__ = ["clean", "engine", "launch", "started"]

"""Environment variables that a backend sets for itself, as opposed to those that the user set."""

from __future__ import annotations

import os
from collections.abc import Mapping

#: Names of the variables that a backend set, separated by commas.
OWN = "COLLBENCH_OWN_VARIABLES"


def own_names(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    return frozenset(filter(None, environ.get(OWN, "").split(",")))


def set_own(variables: Mapping[str, str]) -> None:
    """Set variables, and record that it was not the user."""
    if variables:
        os.environ.update({**variables, OWN: ",".join(sorted(own_names(os.environ) | variables.keys()))})

"""Schemas that know every field, so that a misspelt one is found: Kubernetes' own, and one for MPIJob."""

from __future__ import annotations

from typing import Any

import pytest

#: The API of which schemas are taken.
VERSION = "1.34"

_PODS: dict[str, Any] = {"type": "object"}  # validated as a Pod

_REPLICAS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["template"],
    "properties": {
        "replicas": {"type": "integer", "minimum": 0},
        "restartPolicy": {"enum": ["Never", "OnFailure"]},
        "template": _PODS,
    },
}

#: MPIJob of kubeflow.org/v2beta1, of the fields that its documentation names.
MPI_JOB: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "kubeflow.org/v2beta1"},
        "kind": {"const": "MPIJob"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["mpiReplicaSpecs"],
            "properties": {
                "slotsPerWorker": {"type": "integer", "minimum": 1},
                "runLauncherAsWorker": {"type": "boolean"},
                "sshAuthMountPath": {"type": "string"},
                "launcherCreationPolicy": {"enum": ["AtStartup", "WaitForWorkersReady"]},
                "mpiImplementation": {"enum": ["OpenMPI", "Intel", "MPICH"]},
                "runPolicy": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "cleanPodPolicy": {"enum": ["None", "Running", "All"]},
                        "ttlSecondsAfterFinished": {"type": "integer", "minimum": 0},
                        "activeDeadlineSeconds": {"type": "integer", "minimum": 0},
                        "backoffLimit": {"type": "integer", "minimum": 0},
                        "schedulingPolicy": {"type": "object"},
                        "suspend": {"type": "boolean"},
                        "managedBy": {"type": "string"},
                    },
                },
                "mpiReplicaSpecs": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["Launcher"],
                    "properties": {"Launcher": _REPLICAS, "Worker": _REPLICAS},
                },
            },
        },
    },
}


def check(one: dict[str, Any]) -> None:
    """Whether Kubernetes would take an object; fails with its message."""
    validator = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    import jsonschema

    try:
        if one.get("kind") != "MPIJob":
            validator.validate(one, VERSION, strict=True)
            return
        jsonschema.validate(one, MPI_JOB)
        for replicas in one["spec"]["mpiReplicaSpecs"].values():
            template = replicas["template"]
            validator.validate({"apiVersion": "v1", "kind": "Pod", **template}, VERSION, strict=True)
    except (jsonschema.ValidationError, validator.ValidationError) as error:
        raise AssertionError(f"{one.get('kind')}: {error.message}") from error

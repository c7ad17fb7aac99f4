"""Schemas that know every field, so that a misspelt one is found: Kubernetes' own, and one for MPIJob."""

from __future__ import annotations

from typing import Any

import pytest

#: The API of which schemas are taken.
VERSION = "1.34"


def _table(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """The schema of an object that has no other fields."""
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


_NUMBER, _POSITIVE = ({"type": "integer", "minimum": least} for least in (0, 1))
_TEXT, _BOOLEAN, _ANY = ({"type": kind} for kind in ("string", "boolean", "object"))
_POD = _ANY  # validated as a Pod

_REPLICAS = _table(("template",), replicas=_NUMBER, restartPolicy={"enum": ["Never", "OnFailure"]}, template=_POD)

#: MPIJob of kubeflow.org/v2beta1, of the fields that its documentation names.
MPI_JOB = _table(
    ("apiVersion", "kind", "metadata", "spec"), apiVersion={"const": "kubeflow.org/v2beta1"}, kind={"const": "MPIJob"},
    metadata=_ANY, spec=_table(
        ("mpiReplicaSpecs",), slotsPerWorker=_POSITIVE, runLauncherAsWorker=_BOOLEAN, sshAuthMountPath=_TEXT,
        launcherCreationPolicy={"enum": ["AtStartup", "WaitForWorkersReady"]},
        mpiImplementation={"enum": ["OpenMPI", "Intel", "MPICH"]},
        runPolicy=_table(
            cleanPodPolicy={"enum": ["None", "Running", "All"]}, ttlSecondsAfterFinished=_NUMBER,
            activeDeadlineSeconds=_NUMBER, backoffLimit=_NUMBER, schedulingPolicy=_ANY, suspend=_BOOLEAN,
            managedBy=_TEXT,
        ),
        mpiReplicaSpecs=_table(("Launcher",), Launcher=_REPLICAS, Worker=_REPLICAS),
    ),
)  # fmt: skip


#: ComputeDomain of NVIDIA's driver for dynamic resource allocation, as its CRD has it.
COMPUTE_DOMAIN = _table(
    ("apiVersion", "kind", "metadata", "spec"), apiVersion={"const": "resource.nvidia.com/v1beta1"},
    kind={"const": "ComputeDomain"}, metadata=_ANY, spec=_table(
        ("numNodes", "channel"), numNodes=_NUMBER, channel=_table(
            ("resourceClaimTemplate",), allocationMode={"enum": ["All", "Single"]},
            resourceClaimTemplate=_table(("name",), name=_TEXT),
        ),
    ),
)  # fmt: skip


def check(document: dict[str, Any]) -> None:
    """Whether Kubernetes would take an object; fails with its message."""
    validator = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    import jsonschema

    kind = document.get("kind")
    try:
        if kind == "ComputeDomain":
            jsonschema.validate(document, COMPUTE_DOMAIN)
            return
        if kind != "MPIJob":
            validator.validate(document, VERSION, strict=True)
            return
        jsonschema.validate(document, MPI_JOB)
        for replicas in document["spec"]["mpiReplicaSpecs"].values():
            validator.validate({"apiVersion": "v1", "kind": "Pod", **replicas["template"]}, VERSION, strict=True)
    except (jsonschema.ValidationError, validator.ValidationError) as error:
        raise AssertionError(f"{kind}: {error.message}") from error

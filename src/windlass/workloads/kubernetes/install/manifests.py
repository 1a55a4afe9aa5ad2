"""This module makes the YAML of ``windlass kubernetes install --print``: definitions, account, roles, deployment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import yaml

from windlass._version import __version__
from windlass.kubernetes_api.names import GROUP, LEASE, NAMESPACE

from .crds import node_claim, node_provisioner

NAME: Final = "windlass"
PORT: Final = 8080
READ: Final = ["get", "list", "watch"]
Manifest = dict[str, Any]

CONFIGURATION: Final = """\
# The controller's configuration. List the providers of machines here: NodeProvisioners refer to them by name.
journal: {location: /var/lib/windlass/journal.db}
workload: {type: kubernetes, listen: "0.0.0.0:%(port)d"}
providers: {}
"""


def manifests(
    namespace: str = NAMESPACE, image: str | None = None, *, crds_only: bool = False, shadow: bool = False
) -> list[Manifest]:
    """Return all objects in the order in which they are applied."""
    definitions = [node_provisioner(), node_claim()]
    if crds_only:
        return definitions
    return [
        *definitions,
        _named("v1", "Namespace", namespace),
        _named("v1", "ServiceAccount", NAME, namespace),
        _named("rbac.authorization.k8s.io/v1", "ClusterRole", NAME) | {"rules": cluster_rules(shadow=shadow)},
        _binding("ClusterRole", namespace),
        _named("rbac.authorization.k8s.io/v1", "Role", NAME, namespace) | {"rules": lease_rules()},
        _binding("Role", namespace),
        _configuration(namespace, shadow),
        _deployment(namespace, image or f"windlass:{__version__}"),
    ]


def text(objects: Iterable[Manifest]) -> str:
    """Return the objects as one YAML stream, started by ``---``: kubectl takes a stream that starts with ``{`` for
    JSON.
    """
    return "".join("---\n" + yaml.safe_dump(one, sort_keys=False, width=1000) for one in objects)


def cluster_rules(*, shadow: bool = False) -> list[Manifest]:
    """Return the least rights that the controller needs in the whole cluster; in shadow mode it reads, and writes
    events.
    """
    rules = [
        _rule("", ["pods", "nodes", "namespaces", "podtemplates"], READ),
        _rule("apps", ["daemonsets"], READ),
        _rule("apps", ["deployments", "statefulsets", "replicasets"], ["get"]),
        _rule("autoscaling.x-k8s.io", ["capacitybuffers", "provisioningrequests"], READ),
        _rule("batch", ["jobs"], READ),
        _rule("scheduling.k8s.io", ["podgroups"], READ),
        _rule("scheduling.x-k8s.io", ["podgroups"], READ),
        _rule("resource.k8s.io", ["resourceclaims", "resourceclaimtemplates", "resourceslices", "deviceclasses"], READ),
        _rule(GROUP, ["nodeprovisioners", "nodeclaims"], READ),
        _rule("", ["events"], ["create", "patch"]),
    ]
    if shadow:
        return rules
    return [
        *rules,
        _rule("", ["nodes"], ["create", "patch", "delete"]),
        _rule("", ["nodes/status"], ["patch"]),
        _rule("resource.k8s.io", ["resourceslices"], ["create", "delete"]),
        _rule("", ["pods/eviction"], ["create"]),
        _rule("autoscaling.x-k8s.io", ["capacitybuffers/status", "provisioningrequests/status"], ["patch"]),
        _rule(GROUP, ["nodeprovisioners"], ["patch"]),
        _rule(GROUP, ["nodeclaims"], ["create", "patch", "delete"]),
        _rule(GROUP, ["nodeprovisioners/status", "nodeclaims/status"], ["patch"]),
    ]


def lease_rules() -> list[Manifest]:
    """Return the rights that the controller needs on its Lease. RBAC cannot limit a create to a name."""
    api = "coordination.k8s.io"
    return [
        _rule(api, ["leases"], ["create"]),
        _rule(api, ["leases"], ["get", "update"]) | {"resourceNames": [LEASE]},
    ]


def _rule(group: str, resources: list[str], verbs: list[str]) -> Manifest:
    return {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}


def _named(version: str, kind: str, name: str, namespace: str | None = None) -> Manifest:
    labels = {"app.kubernetes.io/name": NAME}
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), "labels": labels}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _binding(kind: str, namespace: str) -> Manifest:
    return {
        **_named("rbac.authorization.k8s.io/v1", f"{kind}Binding", NAME, namespace if kind == "Role" else None),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }


def _configuration(namespace: str, shadow: bool) -> Manifest:
    written = CONFIGURATION % {"port": PORT} + ("shadow: true\n" if shadow else "")
    return _named("v1", "ConfigMap", NAME, namespace) | {"data": {"windlass.yaml": written}}


def _probe(path: str) -> Manifest:
    return {"httpGet": {"path": path, "port": "http"}, "periodSeconds": 10}


def _deployment(namespace: str, image: str) -> Manifest:
    labels = {"app.kubernetes.io/name": NAME}
    container = {
        "name": NAME,
        "image": image,
        "args": ["run", "/etc/windlass/windlass.yaml"],
        "env": [
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "ports": [{"name": "http", "containerPort": PORT}],
        "livenessProbe": _probe("/healthz"),
        "readinessProbe": _probe("/readyz"),
        "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "configuration", "mountPath": "/etc/windlass"},
            {"name": "journal", "mountPath": "/var/lib/windlass"},
        ],
    }
    pod = {
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "configuration", "configMap": {"name": NAME}},
            {"name": "journal", "emptyDir": {}},
        ],
    }
    return {
        **_named("apps/v1", "Deployment", NAME, namespace),
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }

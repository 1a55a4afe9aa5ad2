"""This module defines the custom resources NodeProvisioner and NodeClaim, as plain data.

``translate.provisioners`` repeats the checks of this schema in code, because older servers ignore CEL rules.
"""

from __future__ import annotations

from typing import Any

from windlass.kubernetes_api.names import GROUP, VERSION

Schema = dict[str, Any]

_DURATION = r"^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$"
_QUANTITY = (
    r"^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_LABEL_VALUE = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
_LABEL_KEY = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$"
_CRON = r"^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|\S+( +\S+){4})$"


def _string(text: str, **more: Any) -> Schema:
    return {"type": "string", "description": text, **more}


def _whole(text: str, **more: Any) -> Schema:
    return {"type": "integer", "format": "int32", "description": text, **more}


def _flag(text: str, default: bool = False) -> Schema:
    return {"type": "boolean", "description": text, "default": default}


def _map(text: str, values: Schema | None = None) -> Schema:
    return {"type": "object", "description": text, "additionalProperties": values or {"type": "string"}}


def _list(text: str, items: Schema, **more: Any) -> Schema:
    return {"type": "array", "description": text, "items": items, **more}


def _object(text: str, properties: Schema, **more: Any) -> Schema:
    return {"type": "object", "description": text, "properties": properties, **more}


_TAINT = _object(
    "A taint as on a node.",
    {
        "key": _string("Its key.", minLength=1, maxLength=316, pattern=_LABEL_KEY),
        "value": _string("Its value.", maxLength=63, pattern=_LABEL_VALUE),
        "effect": _string("What it does.", enum=["NoSchedule", "PreferNoSchedule", "NoExecute"]),
    },
    required=["key", "effect"],
)
_TAINTS = {"maxItems": 100, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key", "effect"]}
"""Lists of taints: a node cannot have two with the same key and effect."""
_AMOUNT = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": _QUANTITY,
    "minimum": 0,
}
_CONDITION = _object(
    "A condition.",
    {
        "type": _string("Its type."),
        "status": _string("Whether it holds.", enum=["True", "False", "Unknown"]),
        "reason": _string("A code."),
        "message": _string("The explanation."),
        "lastTransitionTime": _string("The time of the last change of its status.", format="date-time"),
        "observedGeneration": {"type": "integer", "format": "int64"},
    },
    required=["type", "status", "lastTransitionTime"],
)
_CONDITIONS = _list(
    "The conditions.", _CONDITION, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
)
_TEMPLATE = _object(
    "What every node of this provisioner is like.",
    {
        "labels": _map("Labels of every node.", {"type": "string", "maxLength": 63, "pattern": _LABEL_VALUE}),
        "annotations": _map("Annotations of every node."),
        "taints": _list("Taints of every node; pods must tolerate them.", _TAINT, **_TAINTS),
        "startupTaints": _list(
            "Taints that other controllers remove when the node is initialised. Pods need not tolerate them.",
            _TAINT,
            **_TAINTS,
        ),
        "resources": {
            **_map("What one node offers to pods.", _AMOUNT),
            "minProperties": 1,
            "maxProperties": 100,
        },
        "devices": _list(
            "Devices that the node's ResourceSlices will hold.",
            _object(
                "Equal devices of one driver.",
                {
                    "driver": _string("The DRA driver.", minLength=1),
                    "count": _whole("How many.", minimum=1, default=1),
                    "attributes": _map("Attributes of each device.", {"x-kubernetes-preserve-unknown-fields": True}),
                    "capacity": _map("Capacity of each device.", _AMOUNT),
                    "allowMultipleAllocations": _flag("Whether several claims may share each device."),
                    "counters": _map("What each device and its partitions share; a whole device takes all.", _AMOUNT),
                    "partitions": _list(
                        "Parts of each device that can be allocated instead of the whole device.",
                        _object(
                            "Equal partitions of one device.",
                            {
                                "count": _whole("How many each device has.", minimum=1, default=1),
                                "attributes": _map(
                                    "Attributes of each partition.", {"x-kubernetes-preserve-unknown-fields": True}
                                ),
                                "capacity": _map("Capacity of each partition.", _AMOUNT),
                                "counters": _map("What each partition takes of its device's counters.", _AMOUNT),
                            },
                            required=["counters"],
                        ),
                        maxItems=64,
                    ),
                },
                required=["driver"],
            ),
        ),
        "settings": {
            "type": "object",
            "description": "Settings for the provider, untouched.",
            "x-kubernetes-preserve-unknown-fields": True,
        },
    },
    required=["resources"],
)
_BUDGET = _object(
    "How many nodes may be leaving at once.",
    {
        "nodes": {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": "^((100|[0-9]{1,2})%|[0-9]+)$",
            "minimum": 0,
            "description": "A number of nodes, or a share of the provisioner's nodes such as 10%.",
        },
        "schedule": _string(
            "When the budget is in force: cron, UTC. Without a schedule it is always in force.", pattern=_CRON
        ),
        "duration": _string("How long it is then in force.", pattern=_DURATION),
    },
    required=["nodes"],
    **{
        "x-kubernetes-validations": [
            {"rule": "has(self.schedule) == has(self.duration)", "message": "schedule and duration go together"}
        ]
    },
)
_PROVISIONER_SPEC = _object(
    "The desired state.",
    {
        "template": _TEMPLATE,
        "provider": _string(
            "The provider's name in the controller's configuration. May be left out if there is only one."
        ),
        "gpuResource": _string("The resource that counts as use.", default="nvidia.com/gpu", minLength=1),
        "minGPUUtilizationPercent": _whole(
            "The share of nodes that should be in use. Unset: the provisioner never scales down on its own.",
            minimum=1,
            maximum=100,
        ),
        "minUnutilizedGPUNodes": _whole("Nodes kept beyond those in use.", minimum=0, default=0),
        "buyBuffer": _flag("Whether these nodes are also bought, not only kept."),
        "scaleDownDelay": _string("How long a node is marked before it is deleted.", default="10m", pattern=_DURATION),
        "minNodes": _whole("The least number of nodes.", minimum=0, default=0),
        "maxNodes": _whole("The greatest number of nodes.", minimum=0),
        "actionsPerLoop": _whole(
            "0: the whole plan. 1: only the first action of the plan in each loop.", minimum=0, default=0
        ),
        "budgets": _list(
            "How many nodes may be leaving at once; the strictest budget in force counts.", _BUDGET, maxItems=50
        ),
        "weight": _whole(
            "Of several provisioners that fit, the one with the highest weight is used first.",
            minimum=1,
            maximum=100,
            default=10,
        ),
        "price": _string("Dollars per hour for one node.", pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?$"),
        "deletionPolicy": _string(
            "What happens to its nodes when it is deleted.", enum=["Drain", "Orphan"], default="Drain"
        ),
        "paused": _flag("Whether scaling is paused: no machine is bought or released."),
        "repair": _list(
            "Conditions by which a node is drained and replaced; at most 20 % of the nodes at once.",
            _object(
                "A condition of a broken node.",
                {
                    "condition": _string("The type of the node's condition, such as GPUHealthy.", minLength=1),
                    "status": _string("Its bad status.", enum=["True", "False", "Unknown"]),
                    "after": _string("How long it must have had that status.", pattern=_DURATION),
                },
                required=["condition", "status", "after"],
            ),
            maxItems=50,
        ),
    },
    required=["template", "maxNodes"],
    **{
        "x-kubernetes-validations": [
            {
                "rule": "!has(self.minNodes) || self.maxNodes >= self.minNodes",
                "message": "maxNodes must be at least minNodes",
                "fieldPath": ".maxNodes",
            },
            {
                "rule": "!has(self.gpuResource) || self.gpuResource == 'nvidia.com/gpu'"
                " || self.gpuResource in self.template.resources || has(self.template.devices)",
                "message": "gpuResource must be one of template.resources",
                "fieldPath": ".gpuResource",
            },
        ]
    },
)
_PROVISIONER_STATUS = _object(
    "What is.",
    {
        "observedGeneration": {"type": "integer", "format": "int64"},
        "currentSize": _whole("Registered nodes, marked ones included."),
        "targetSize": _whole("Nodes wanted."),
        "utilizedNodes": _whole("Nodes in use."),
        "markedNodes": _whole("Nodes marked for deletion."),
        "inFlight": _whole("Machines that were bought and are not ready for pods yet."),
        "utilizationPercent": _whole("Share of its nodes in use."),
        "nextDeadline": _string("The earliest deadline of a marked node.", format="date-time"),
        "lastDecision": _object(
            "The last change of the target.",
            {
                "time": _string("When.", format="date-time"),
                "code": _string("The reason's code."),
                "message": _string("The reason in a sentence."),
            },
        ),
        "conditions": _CONDITIONS,
    },
)


def _column(name: str, kind: str, path: str) -> Schema:
    return {"name": name, "type": kind, "jsonPath": path}


def node_provisioner() -> Schema:
    """Return the definition of NodeProvisioner."""
    return _definition(
        "NodeProvisioner",
        "nodeprovisioners",
        "wnp",
        "Buys GPU nodes for unschedulable pods, and releases empty ones.",
        _PROVISIONER_SPEC,
        _PROVISIONER_STATUS,
        [
            _column("Current", "integer", ".status.currentSize"),
            _column("Target", "integer", ".status.targetSize"),
            _column("Utilization", "integer", ".status.utilizationPercent"),
            _column("Marked", "integer", ".status.markedNodes"),
            _column("In-Flight", "integer", ".status.inFlight"),
            _column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status"),
            _column("Age", "date", ".metadata.creationTimestamp"),
        ],
        {"specReplicasPath": ".spec.minNodes", "statusReplicasPath": ".status.currentSize"},
    )


def node_claim() -> Schema:
    """Return the definition of NodeClaim."""
    spec = _object(
        "The order.",
        {
            "provisioner": _string("Its NodeProvisioner.", minLength=1),
            "provider": _string("The provider of the machine."),
        },
        required=["provisioner"],
    )
    status = _object(
        "What is.",
        {
            "providerID": _string("The machine's id at its provider."),
            "nodeName": _string("Its node."),
            "certificate": _object(
                "The evidence that the node was empty before its machine was terminated.",
                {
                    "epoch": {"type": "integer", "format": "int64"},
                    "time": _string("When the list was read.", format="date-time"),
                    "resourceVersion": _string("At which version the list of its pods was empty."),
                },
            ),
            "conditions": _CONDITIONS,
        },
    )
    return _definition(
        "NodeClaim",
        "nodeclaims",
        "wnc",
        "One machine of a NodeProvisioner, from the order until the provider no longer lists it.",
        spec,
        status,
        [
            _column("Provisioner", "string", ".spec.provisioner"),
            _column("Node", "string", ".status.nodeName"),
            _column("Ready", "string", ".status.conditions[?(@.type=='Initialized')].status"),
            _column("Age", "date", ".metadata.creationTimestamp"),
        ],
        None,
    )


def _definition(
    kind: str,
    plural: str,
    short: str,
    text: str,
    spec: Schema,
    status: Schema,
    columns: list[Schema],
    scale: Schema | None,
) -> Schema:
    schema = _object(
        text,
        {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        required=["spec"],
        **{
            "x-kubernetes-validations": [
                {
                    "rule": "self.metadata.name.size() <= 63",
                    "message": "metadata.name must be 63 characters at most: it is the value of a label",
                }
            ]
        },
    )
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, **({"scale": scale} if scale else {})},
        "additionalPrinterColumns": columns,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
            },
            "versions": [version],
        },
    }

"""This program loads a ``NodeProvider`` and calls it as requested: one JSON object per line in, one out.

It runs with a Python that has Ray: ``python bridge.py MODULE.CLASS CLUSTER_NAME CONFIG``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SLICE = "windlass-slice"
LAUNCH_ERROR = "NodeLaunchException"


def loaded(path: str, config: dict[str, Any], cluster_name: str) -> Any:
    module, _, name = path.rpartition(".")
    sys.path.insert(0, str(Path.cwd()))
    return getattr(importlib.import_module(module), name)(config, cluster_name)


class Bridge:
    """Calls the node provider, one call at a time, like Ray's own adapter."""

    def __init__(self, provider: Any) -> None:
        self.provider = provider

    def list(self) -> list[dict[str, Any]]:
        found = []
        for node in self.provider.non_terminated_nodes({}):
            try:
                tags = dict(self.provider.node_tags(node))
            except Exception:
                if node in self.provider.non_terminated_nodes({}):
                    raise
                continue  # the node has ended in between
            if SLICE in tags:
                found.append({"node": str(node), "tags": tags, "running": bool(self._is_running(node))})
        return found

    def _is_running(self, node: Any) -> bool:
        is_running = getattr(self.provider, "is_running", None)
        return True if is_running is None else bool(is_running(node))

    def create(
        self, node_config: dict[str, Any], tags: dict[str, str], resources: dict[str, float], labels: dict[str, str]
    ) -> None:
        """Create one node, unless one with these tags exists."""
        wanted = {key: value for key, value in tags.items() if key.startswith("windlass-")}
        if self.provider.non_terminated_nodes(wanted):
            return
        with_resources = getattr(self.provider, "create_node_with_resources_and_labels", None)
        if with_resources is not None:
            try:
                with_resources(node_config, tags, 1, resources, labels)
                return
            except NotImplementedError:
                pass
        self.provider.create_node(node_config, tags, 1)

    def terminate(self, nodes: Sequence[str]) -> None:
        there = set(self.provider.non_terminated_nodes({}))
        self.provider.terminate_nodes([node for node in nodes if node in there])

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            result = getattr(self, request["call"])(*request.get("args", ()))
            return {"id": request["id"], "result": result}
        except Exception as error:  # noqa: BLE001  # the error is reported to the caller
            kind = type(error).__name__
            category = getattr(error, "category", "") if kind == LAUNCH_ERROR else ""
            text = str(getattr(error, "description", "") or error) or kind
            return {"id": request["id"], "error": {"kind": kind, "category": str(category), "text": text}}


def main() -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # prints of the node provider must not mix with answers
    bridge = Bridge(loaded(sys.argv[1], json.loads(sys.argv[3]), sys.argv[2]))
    for line in sys.stdin:
        out.write(json.dumps(bridge.answer(json.loads(line))) + "\n")
        out.flush()


if __name__ == "__main__":
    main()

# ruff: noqa: ARG002, PTH123  (the methods are Ray's)
"""A node provider for Ray's own autoscaler that runs ``ray start`` on this machine, as Windlass's local provider does.

Loaded by Ray's monitor (``provider: {type: external, module: ray_provider.ProcessProvider}``). What it is asked to do
is appended to ``BENCH_LOG``, one JSON object per line.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid

from ray.autoscaler.node_provider import NodeProvider
from ray.autoscaler.tags import (
    NODE_KIND_HEAD,
    NODE_KIND_WORKER,
    TAG_RAY_NODE_KIND,
    TAG_RAY_NODE_STATUS,
    TAG_RAY_USER_NODE_TYPE,
)

UP = {TAG_RAY_NODE_STATUS: "up-to-date"}


def _log(**what):
    with open(os.environ["BENCH_LOG"], "a", encoding="utf-8") as log:
        log.write(json.dumps({"at": time.time(), **what}) + "\n")


class ProcessProvider(NodeProvider):
    """Nodes are processes of this machine."""

    def __init__(self, provider_config, cluster_name):
        super().__init__(provider_config, cluster_name)
        # The head and the desk run already. A node that is not listed here is gone for the autoscaler: without its head
        # it launches and ends nothing.
        self.nodes = {
            f"{kind}-0": (
                None,
                {TAG_RAY_NODE_KIND: role, TAG_RAY_USER_NODE_TYPE: kind, TAG_RAY_NODE_STATUS: "up-to-date"},
            )
            for kind, role in (("head", NODE_KIND_HEAD), ("desk", NODE_KIND_WORKER))
        }

    def non_terminated_nodes(self, tag_filters):
        found = [name for name, (process, _) in self.nodes.items() if process is None or process.poll() is None]
        return [n for n in found if all(self.nodes[n][1].get(k) == v for k, v in tag_filters.items())]

    def is_running(self, node_id):
        return node_id in self.non_terminated_nodes({})

    def is_terminated(self, node_id):
        return not self.is_running(node_id)

    def node_tags(self, node_id):
        return self.nodes[node_id][1]

    def set_node_tags(self, node_id, tags):
        self.nodes[node_id][1].update(tags)

    def external_ip(self, node_id):
        return os.environ["BENCH_HOST"]

    def internal_ip(self, node_id):
        return os.environ["BENCH_HOST"]

    def create_node(self, node_config, tags, count):
        for _ in range(count):
            name = f"n-{uuid.uuid4().hex[:8]}"
            _log(launch=name)
            environment = {
                **os.environ,
                "RAY_CLOUD_INSTANCE_ID": name,
                "RAY_NODE_TYPE_NAME": tags[TAG_RAY_USER_NODE_TYPE],
            }
            words = [os.environ["BENCH_RAY"], "start", "--block", *json.loads(os.environ["BENCH_START"])]
            words.append(f"--temp-dir=/tmp/wb-{name}")
            process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.nodes[name] = (process, {**tags, **UP})

    def create_node_with_resources_and_labels(self, node_config, tags, count, resources, labels):
        self.create_node(node_config, tags, count)

    def terminate_node(self, node_id):
        _log(terminate=node_id)
        process, _ = self.nodes[node_id]
        if process is not None:
            process.send_signal(signal.SIGTERM)

    def terminate_nodes(self, node_ids):
        for node_id in node_ids:
            self.terminate_node(node_id)

    @staticmethod
    def bootstrap_config(cluster_config):
        return cluster_config

"""A v1 ``NodeProvider`` whose nodes are processes; needs no Ray. What it has is in a directory, as in a cloud."""

import json
import os
import signal
import subprocess
import uuid
from pathlib import Path


class NodeLaunchException(Exception):
    def __init__(self, category, description):
        super().__init__(category, description)
        self.category, self.description = category, description


class ProcessNodes:
    def __init__(self, provider_config, cluster_name):
        self.home = Path(provider_config["directory"])
        self.home.mkdir(parents=True, exist_ok=True)
        self.refuse = provider_config.get("refuse")
        self.children = []

    def _nodes(self):
        found = {}
        for file in self.home.glob("*.json"):
            node = json.loads(file.read_text())
            for child in self.children:
                child.poll()
            if (
                Path(f"/proc/{node['pid']}/status").exists()
                and "State:\tZ" not in Path(f"/proc/{node['pid']}/status").read_text()
            ):
                found[file.stem] = node
        return found

    def non_terminated_nodes(self, tag_filters):
        wanted = tag_filters.items()
        return [name for name, node in self._nodes().items() if all(node["tags"].get(k) == v for k, v in wanted)]

    def is_running(self, node_id):
        return node_id in self._nodes()

    def node_tags(self, node_id):
        return self._nodes()[node_id]["tags"]

    def create_node(self, node_config, tags, count):
        if self.refuse:
            raise NodeLaunchException(self.refuse, "no such machine now")
        for _ in range(count):
            name = f"node-{uuid.uuid4().hex[:8]}"
            # A node starts Ray by itself, under its own id.
            environment = {**os.environ, **node_config["windlass"]["environment"], "RAY_CLOUD_INSTANCE_ID": name}
            child = subprocess.Popen(node_config["windlass"]["command"], env=environment, start_new_session=True)
            self.children.append(child)
            (self.home / f"{name}.json.new").write_text(json.dumps({"pid": child.pid, "tags": tags}))
            (self.home / f"{name}.json.new").rename(self.home / f"{name}.json")

    def terminate_nodes(self, node_ids):
        for node_id in node_ids:
            node = self._nodes().get(node_id)
            if node is not None:
                os.kill(node["pid"], signal.SIGKILL)

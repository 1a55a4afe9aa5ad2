"""Anti-affinity, affinity, topology spread and host ports: what waiting pods and running ones demand of each other."""

from __future__ import annotations

from typing import Any

from .conftest import pod
from .stage import PODS, PROVISIONERS, UNSCHEDULABLE, Stage, provisioner, staged

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
SMALL = {"cpu": "1"}


def selecting(app: str, topology: str) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology}


def required(kind: str, *terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def put(stage: Stage, name: str, app: str = "web", node: str = "", **spec: Any) -> None:
    body = pod(name, requests=SMALL, **spec)
    body["metadata"]["labels"] = {"app": app}
    body["status"] = {"phase": "Running"} if node else {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
    if node:
        body["spec"]["nodeName"] = node
    stage.fake.put(PODS, body)


def zones(stage: Stage) -> list[str]:
    return sorted(one["metadata"]["labels"].get(ZONE, "") for one in stage.fake.all("nodes"))


def in_zones(stage: Stage, *names: str) -> None:
    for name in names:
        stage.fake.put(PROVISIONERS, provisioner(name, template={"labels": {ZONE: name}}))


def test_pods_that_keep_apart_by_host_get_a_machine_each():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner())
        for number in range(3):
            put(stage, f"web-{number}", **required("podAntiAffinity", selecting("web", HOST)))
        await stage.until(lambda: stage.status().get("currentSize") == 3)
        await stage.tick(2)
        assert len(stage.nodes) == 3

    staged(test)


def test_a_pod_keeps_away_from_a_node_where_one_like_it_runs():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(minNodes=1))
        await stage.until(lambda: stage.status().get("currentSize") == 1)
        put(stage, "running", node=stage.nodes[0])
        put(stage, "waiting", **required("podAntiAffinity", selecting("web", HOST)))
        await stage.until(lambda: len(stage.nodes) == 2)

    staged(test)


def test_a_running_pod_keeps_a_waiting_one_away_by_its_own_rule():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(minNodes=1))
        await stage.until(lambda: stage.status().get("currentSize") == 1)
        put(stage, "running", "db", stage.nodes[0], **required("podAntiAffinity", selecting("web", HOST)))
        put(stage, "waiting", "web")
        await stage.until(lambda: len(stage.nodes) == 2)

    staged(test)


SPREAD = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}


def foreign(stage: Stage, name: str, zone: str, **spec: Any) -> None:
    """A node that no provisioner owns."""
    stage.fake.put("/api/v1/nodes", {"metadata": {"name": name, "labels": {ZONE: zone, HOST: name}}, "spec": spec})


def test_pods_spread_over_zones_get_machines_in_each():
    async def test(stage: Stage) -> None:
        in_zones(stage, "a", "b", "c")
        for number in range(3):
            put(stage, f"web-{number}", topologySpreadConstraints=[SPREAD])
        await stage.until(lambda: len(stage.nodes) == 3)
        assert zones(stage) == ["a", "b", "c"]

    staged(test)


def test_a_spread_counts_pods_on_nodes_that_no_provisioner_owns():
    async def test(stage: Stage) -> None:
        in_zones(stage, "a", "b")
        foreign(stage, "static", "a")
        put(stage, "web-0", node="static")
        put(stage, "web-1", topologySpreadConstraints=[SPREAD])
        await stage.until(lambda: len(stage.nodes) == 2)
        assert zones(stage) == ["a", "b"]

    staged(test)


def test_a_spread_over_a_zone_that_only_foreign_nodes_have_buys_nothing_that_would_not_help():
    async def test(stage: Stage) -> None:
        in_zones(stage, "a")
        foreign(stage, "in-a", "a")
        foreign(stage, "in-b", "b")
        put(stage, "web-0", node="in-a")
        put(stage, "web-1", topologySpreadConstraints=[SPREAD])
        await stage.tick(3)
        assert len(stage.nodes) == 2
        assert "b holds 0" in stage.events("NotTriggerScaleUp")[0]["message"]

    staged(test)


def test_a_foreign_zone_that_the_pod_may_not_use_does_not_count_for_its_spread():
    async def test(stage: Stage) -> None:
        in_zones(stage, "a")
        foreign(stage, "in-a", "a")
        foreign(stage, "in-b", "b", taints=[{"key": "system", "effect": "NoSchedule"}])
        put(stage, "web-0", node="in-a")
        put(stage, "web-1", topologySpreadConstraints=[{**SPREAD, "nodeTaintsPolicy": "Honor"}])
        await stage.until(lambda: len(stage.nodes) == 3)
        assert zones(stage) == ["a", "a", "b"]

    staged(test)


def test_a_namespace_selector_selects_namespaces_by_their_labels():
    async def test(stage: Stage) -> None:
        in_zones(stage, "a", "b", "c")
        for team, zone in (("red", "a"), ("blue", "b")):
            stage.fake.put("/api/v1/namespaces", {"metadata": {"name": team, "labels": {"team": team}}})
            foreign(stage, f"static-{team}", zone)
            body = pod(f"db-{team}", requests=SMALL, nodeName=f"static-{team}")
            body["metadata"] |= {"labels": {"app": "db"}, "namespace": team}
            body["status"] = {"phase": "Running"}
            stage.fake.put(f"/api/v1/namespaces/{team}/pods", body)
        near = {**selecting("db", ZONE), "namespaceSelector": {"matchLabels": {"team": "blue"}}}
        put(stage, "cache-0", "cache", **required("podAffinity", near))
        await stage.until(lambda: len(stage.nodes) == 3)
        assert zones(stage) == ["a", "b", "b"]

    staged(test)


def test_a_pod_that_wants_to_be_near_another_gets_a_machine_in_its_zone():
    async def test(stage: Stage) -> None:
        in_zones(stage, "a", "b")
        stage.fake.put("/api/v1/nodes", {"metadata": {"name": "static", "labels": {ZONE: "b", HOST: "static"}}})
        put(stage, "db-0", "db", "static")
        put(stage, "cache-0", "cache", **required("podAffinity", selecting("db", ZONE)))
        await stage.until(lambda: len(stage.nodes) == 2)
        assert zones(stage) == ["b", "b"]

    staged(test)


def test_a_pod_near_nothing_waits_and_its_event_says_so():
    async def test(stage: Stage) -> None:
        in_zones(stage, "a")
        put(stage, "cache-0", "cache", **required("podAffinity", selecting("db", ZONE)))
        await stage.tick(3)
        assert stage.nodes == []
        assert "TOGETHER" in stage.events("NotTriggerScaleUp")[0]["message"]

    staged(test)


def test_pods_with_the_same_host_port_get_a_machine_each():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner())
        for number in range(2):
            body = pod(f"port-{number}", requests=SMALL)
            body["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
            body["status"] = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
            stage.fake.put(PODS, body)
        await stage.until(lambda: len(stage.nodes) == 2)

    staged(test)


def test_the_same_host_port_conflicts_only_on_the_same_address():
    def taking(name: str, address: str) -> dict[str, Any]:
        body = pod(name, requests=SMALL)
        body["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080, "hostIP": address}]
        return body | {"status": {"phase": "Pending", "conditions": [UNSCHEDULABLE]}}

    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(minNodes=1))
        await stage.until(lambda: stage.status().get("currentSize") == 1)
        running = taking("running", "10.0.0.1")
        running["spec"]["nodeName"] = stage.nodes[0]
        stage.fake.put(PODS, running | {"status": {"phase": "Running"}})
        stage.fake.put(PODS, taking("other", "10.0.0.2"))
        await stage.tick(3)
        assert len(stage.nodes) == 1
        stage.fake.put(PODS, taking("all", "0.0.0.0"))
        await stage.until(lambda: len(stage.nodes) == 2)

    staged(test)


def test_waiting_pods_share_a_machine_if_their_host_ports_differ_in_address_or_protocol():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner())
        taken = [("TCP", "10.0.0.1"), ("TCP", "10.0.0.2"), ("UDP", "10.0.0.1"), ("UDP", "")]
        for number, (protocol, address) in enumerate(taken):
            body = pod(f"port-{number}", requests=SMALL)
            port = {"containerPort": 80, "hostPort": 8080, "hostIP": address, "protocol": protocol}
            body["spec"]["containers"][0]["ports"] = [port]
            body["status"] = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
            stage.fake.put(PODS, body)
        await stage.until(lambda: stage.status().get("currentSize") == 2)
        await stage.tick(2)
        assert len(stage.nodes) == 2  # the fourth pod takes the UDP port of all addresses

    staged(test)


def test_of_several_terms_of_a_node_affinity_one_must_hold():
    async def test(stage: Stage) -> None:
        in_zones(stage, "a", "b")
        terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [one]}]} for one in ("x", "b")]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        put(stage, "choosy", affinity=affinity)
        await stage.until(lambda: len(stage.nodes) == 1)
        assert zones(stage) == ["b"]

    staged(test)


def test_a_gang_is_bought_for_as_a_whole_or_not_at_all():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(maxNodes=2))
        gang = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
        stage.fake.put("/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups", gang)
        for number in range(3):
            body = pod(f"g-{number}", requests={"nvidia.com/gpu": "8"}, schedulingGroup={"podGroupName": "g"})
            body["status"] = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
            stage.fake.put(PODS, body)
        await stage.tick(3)
        assert stage.nodes == []
        assert stage.events("NotTriggerScaleUp")[0]["message"].startswith("AT_MAX")
        stage.fake.change(f"{PROVISIONERS}/a100", lambda one: one["spec"].update(maxNodes=3))
        await stage.until(lambda: len(stage.nodes) == 3)

    staged(test)


def test_a_pod_with_resource_claims_gets_an_event_that_they_are_not_supported():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner())
        put(stage, "dra", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
        await stage.tick(2)
        assert stage.nodes == []
        assert stage.events("NotTriggerScaleUp")[0]["message"].startswith("UNKNOWN_INPUT")

    staged(test)

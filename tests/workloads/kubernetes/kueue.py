"""What Kueue's controller of ProvisioningRequests does for a job, with Kueue's own objects and names.

A job arrives suspended. For its Workload a PodTemplate and a ProvisioningRequest are made, both with owner references.
When the request is provisioned, the job gets the annotations that consume it, and starts. When it has failed, or its
booking has expired before the job started, the next attempt has the next number, and the old request is deleted.
"""

from __future__ import annotations

from typing import Any

from windlass.testing.kubernetes.control_plane import ControlPlane

from .autoscaling_crds import ANY, CONDITIONS, definition

CHECK = "dws"
"""The name of the AdmissionCheck."""
MANAGED = {"kueue.x-k8s.io/managed": "true"}
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads"
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests"
TEMPLATES = "/api/v1/namespaces/default/podtemplates"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
WORKLOAD = definition(
    "Workload",
    "v1beta1",
    {"podSets": {"type": "array", "items": ANY}, "queueName": {"type": "string"}},
    {"admissionChecks": {"type": "array", "items": ANY}, "conditions": CONDITIONS},
    group="kueue.x-k8s.io",
)


class Kueue:
    """Starts jobs when there is room for all of their pods."""

    def __init__(self, plane: ControlPlane, provisioning_class: str, **parameters: str) -> None:
        """``parameters``: of the ProvisioningRequestConfig."""
        self._plane, self._class, self._parameters = plane, provisioning_class, parameters
        self._jobs: dict[str, int] = {}
        """Jobs that wait, and the number of the attempt."""

    def submit(self, name: str, pods: int, gpus: int = 8) -> None:
        """Create a suspended job and its Workload, as Kueue's webhook and its job controller do."""
        container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": str(gpus), "cpu": "1"}}}
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
        self._plane.call(
            "POST",
            JOBS,
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
                "spec": {"suspend": True, "parallelism": pods, "completions": pods, "template": {"spec": spec}},
            },
        )
        job = self._plane.call("GET", f"{JOBS}/{name}")
        sets = [{"name": "main", "count": pods, "template": {"spec": spec}}]
        self._plane.call(
            "POST",
            WORKLOADS,
            {
                "apiVersion": "kueue.x-k8s.io/v1beta1",
                "kind": "Workload",
                "metadata": self._meta(f"job-{name}", job, "batch/v1", "Job"),
                "spec": {"podSets": sets, "queueName": "main"},
            },
        )
        self._jobs[name] = 0

    def reconcile(self) -> list[str]:
        """Make requests for jobs that have none, and start jobs whose requests are provisioned: the jobs that wait."""
        for name, attempt in list(self._jobs.items()):
            conditions = self.conditions(name) if attempt else {}
            if not attempt or conditions.get("Failed") == "True" or conditions.get("BookingExpired") == "True":
                self._request(name, attempt + 1)
                if attempt:
                    self._plane.call("DELETE", f"{REQUESTS}/{self.request_name(name)}")
                self._jobs[name] = attempt + 1
            elif conditions.get("Provisioned") == "True":
                self._start(name)
                del self._jobs[name]
        return list(self._jobs)

    def request_name(self, job: str, attempt: int = 0) -> str:
        return f"job-{job}-{CHECK}-{attempt or self._jobs[job]}"

    def conditions(self, job: str) -> dict[str, str]:
        found = self._plane.call("GET", f"{REQUESTS}/{self.request_name(job)}").get("status") or {}
        return {one["type"]: one["status"] for one in found.get("conditions") or ()}

    def _request(self, job: str, attempt: int) -> None:
        workload = self._plane.call("GET", f"{WORKLOADS}/job-{job}")
        (pods,) = workload["spec"]["podSets"]
        name = self.request_name(job, attempt)
        template = f"ppt-{name}-main"
        spec = pods["template"]["spec"]
        for one in spec["containers"]:
            one["resources"]["requests"] = one["resources"]["limits"]
        owned = self._meta(template, workload, "kueue.x-k8s.io/v1beta1", "Workload")
        self._plane.call(
            "POST",
            TEMPLATES,
            {"apiVersion": "v1", "kind": "PodTemplate", "metadata": owned, "template": {"metadata": {}, "spec": spec}},
        )
        self._plane.call(
            "POST",
            REQUESTS,
            {
                "apiVersion": "autoscaling.x-k8s.io/v1",
                "kind": "ProvisioningRequest",
                "metadata": self._meta(name, workload, "kueue.x-k8s.io/v1beta1", "Workload"),
                "spec": {
                    "provisioningClassName": self._class,
                    "parameters": self._parameters,
                    "podSets": [{"podTemplateRef": {"name": template}, "count": pods["count"]}],
                },
            },
        )
        request = self._plane.call("GET", f"{REQUESTS}/{name}")
        theirs = self._meta(template, request, "autoscaling.x-k8s.io/v1", "ProvisioningRequest")
        self._patch(f"{TEMPLATES}/{template}", {"metadata": {"ownerReferences": theirs["ownerReferences"]}})

    def _start(self, job: str) -> None:
        notes = {
            "autoscaling.x-k8s.io/consume-provisioning-request": self.request_name(job),
            "autoscaling.x-k8s.io/provisioning-class-name": self._class,
        }
        self._patch(f"{JOBS}/{job}", {"spec": {"suspend": False, "template": {"metadata": {"annotations": notes}}}})

    def _patch(self, path: str, body: dict[str, Any]) -> None:
        self._plane.call("PATCH", path, body, content_type="application/merge-patch+json")

    def _meta(self, name: str, owner: dict[str, Any], version: str, kind: str) -> dict[str, Any]:
        reference = {
            "apiVersion": version,
            "kind": kind,
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        return {"name": name, "namespace": "default", "labels": MANAGED, "ownerReferences": [reference]}

"""This package runs a Kubernetes cluster as a workload: unschedulable pods are demand, each NodeProvisioner is a group.

`windlass.kubernetes_api` talks to the API server. `mirror` keeps the cluster in memory. `translate` turns what the API
says into the planner's words: pod needs, node conditions, provisioners as groups. `workload` implements
the workload contract on top of both: the view of one instant, and the fence that protects running pods. `publish`
writes decisions back: taints with deadlines, claims, status, events. `install` prints the custom resource definitions
and the controller's deployment.

Nothing here decides. The planner decides with the rule ``utilization``, as it does for every workload.
"""

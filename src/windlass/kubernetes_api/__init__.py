"""This package is a client of a Kubernetes API server: transport, typed objects, and reflectors that mirror lists in
memory.

The Kubernetes workload and the providers kwok and kuberay use it.
"""

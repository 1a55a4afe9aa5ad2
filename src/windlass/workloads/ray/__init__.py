"""This package is the workload type ``ray``: the user runs a Ray head, and Windlass buys workers for it.

``gcs`` is a gRPC client of the head's GCS and of raylets, with messages of our own (``wire.proto``); Ray is never
imported. ``demand``, ``nodes``, ``waiting`` and ``view`` turn these messages into the demand and the nodes of the
workload contract; ``report`` turns the controller's decisions into messages for ``ray status``. These modules are pure;
``workload`` calls them. A drain in Ray cannot be undone: ``fences`` records which nodes were drained, for which fence
and with what result. ``join`` and ``credentials`` make the command and the environment of a worker.
"""

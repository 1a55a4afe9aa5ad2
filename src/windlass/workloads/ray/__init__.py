"""A Ray cluster as a workload: a head that the user runs, and workers that Windlass buys for it.

``gcs`` is a gRPC client of the head's GCS and its raylets, with messages of our own (``wire.proto``); Ray itself is
never imported. ``demand``, ``nodes`` and ``waiting`` turn these messages into demand and nodes of the contract;
``report`` turns what the controller decided into messages for ``ray status``; all four are pure. ``workload`` calls
them. A drain of Ray cannot be taken back: ``fences`` keeps which nodes were drained, for which fence, with what result.
``join`` and ``credentials`` are what a worker is started with.
"""

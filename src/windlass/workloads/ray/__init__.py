"""A Ray cluster as a workload: a head that the user runs, and workers that Windlass buys for it.

``gcs`` speaks gRPC with the head's GCS and its raylets, in messages of our own (``wire.proto``); Ray itself is never
imported. ``demand`` and ``nodes`` turn these messages into the words of the contract, ``report`` turns what the
controller decided into messages for ``ray status``; all three are pure. ``workload`` holds them together. Ray's drain
has no way back: ``fences`` keeps which nodes were drained, for which fence, and what came of it.
"""

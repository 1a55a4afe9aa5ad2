"""This package has the conformance suites and fakes for authors of providers, workloads and engines.

A suite is a plain class of tests for pytest. Inherit it under a name that begins with ``Test``, say how to get at what
is tested, and run pytest:

    from windlass.testing.provider_conformance import ProviderConformance

    class TestMyCloud(ProviderConformance):
        def provider(self):
            return MyCloud(account="test")  # called twice in a test: as after a restart, on the same account

        def order(self, slice_id, hosts=1):
            return super().order(slice_id, hosts, group="small", settings={"type": "small-1"})

        async def leftovers(self, slice_id):
            return await my_disks_tagged(slice_id)  # must be empty when a slice is gone

Each test gets a fresh object of the class, so what it keeps on ``self`` is its own. `workload_conformance` and
`engine_conformance` work the same way, each on a stage that you give; the engines' tests share one engine per class.
`waiting` has ``run`` and ``eventually``, with which the suites wait: by looking, with a deadline, never by sleeping and
hoping.
"""

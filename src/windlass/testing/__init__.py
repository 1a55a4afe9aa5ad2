"""This package has the conformance suites and fakes for authors of providers, workloads and engines.

A suite is a plain class of tests for pytest. Inherit it under a name that begins with ``Test``, define the method that
creates the object under test, and run pytest:

    from windlass.testing.provider_conformance import ProviderConformance

    class TestMyCloud(ProviderConformance):
        def provider(self):
            return MyCloud(account="test")  # a second call in one test is a restart on the same account

        def order(self, slice_id, hosts=1):
            return super().order(slice_id, hosts, group="small", settings={"type": "small-1"})

        async def leftovers(self, slice_id):
            return await my_disks_tagged(slice_id)  # must be empty when a slice is gone

Each test gets a new object of the class, so that it can keep state on ``self``. `workload_conformance` and
`engine.conformance` work the same way, each with a stage that you define; the tests of an engine share one engine per
class. `eventually` has the functions with which the suites wait: they poll with a deadline and never sleep for a fixed
time.
"""

"""The Dask workload scales a Dask cluster whose scheduler a user already runs."""

"""The Dask engine carries calls through a private Dask scheduler with mutual TLS."""

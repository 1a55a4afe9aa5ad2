"""Providers: the systems that sell slices. One module a provider, and the contract that all of them keep.

`protocol` is the contract. `local` sells groups of real processes on this machine; `local_host` is the small program
that stands over each of them. A provider of your own passes ``windlass.testing.provider_conformance``.
"""

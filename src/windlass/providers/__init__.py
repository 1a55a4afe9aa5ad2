"""Providers launch and end machines. `protocol` is their contract, `registry` lists their types; each has its package.

`local` sells groups of real processes on this machine. A provider of your own passes
``windlass.testing.provider_conformance`` (see the page "Write a provider").
"""

"""Providers sell slices. `protocol` is their contract, `registry` lists the types; one package a provider.

`local` sells groups of real processes on this machine. A provider of your own passes
``windlass.testing.provider_conformance`` (see the page "Write a provider").
"""

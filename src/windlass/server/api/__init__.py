"""This package has the routes of `/api/v1`: documents of now and of the past, orders, replays, sessions, and their
OpenAPI document.

A route is thin: it checks its arguments, gets a document from the feed or `windlass.control.report`, and sends it.
"""

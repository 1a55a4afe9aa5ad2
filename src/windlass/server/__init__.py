"""The server sends the documents of `windlass.control.report` to browsers and programs: HTTP API and dashboard.

The server reads the journal and nothing else, so it works inside a controller, beside one, and for a cluster that is
stopped. A thread follows the journal, makes the status once a pass, and encodes each change once for all readers
(`live`). Orders of operators are appended to the journal, as those of the command line are. The server never decides
and never writes settings.

`access` checks every request (host, origin, token, role, rate) before a route sees it; `live` has the status of now and
the stream of its changes; `api` has the routes and their OpenAPI document. `app` puts them together, `listener` serves
them, `pages` and `static` are the dashboard, `metrics` and `timing` the numbers for Prometheus, `notify` the webhooks,
`problems` and `errors` the answers to requests that fail.
"""

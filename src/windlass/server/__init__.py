"""The HTTP API and the dashboard: what `windlass.control.report` gives, sent to browsers and programs.

The server reads the journal and nothing else, so it works inside a controller, beside one, and for a cluster that is
stopped. A thread follows the journal, makes the status once a pass, and encodes each change once for all readers
(`feed`). Orders of operators are appended to the journal, as those of the command line are. The server never decides
and never writes settings.

`app` puts the routes together; `guard` checks every request (host, origin, token, role, rate) before a route sees it;
`tokens` has the token file and sessions; `problems` the errors; `stream` the server-sent events; `what_if` the replays
in a child process; `metrics` the numbers for Prometheus; `notify` the webhooks; `static` the pages.
"""

"""This package turns a machine with SSH into a node: connection, agent program, bootstrap script and tunnel.

The controller opens one SSH connection to each machine (`connection`), installs a small program there (`agent`) and
sends it requests. The agent assigns the machine to one slice at a time (`machine_store`), runs the bootstrap script of
an image (`image`), and starts the node's program under a `supervisor`. The supervisor forwards TCP streams between the
program and the controller over a resumable multiplexer (`mux`): a machine needs no route to the controller, and no byte
is lost when a connection breaks and is opened again. `machine` combines these for one machine, and `preparation` brings
a machine from its assignment to a running program.

Host keys are always checked against keys that were known before the first connection. The environment of a program may
have private keys in it: it goes over the connection to the agent's standard input, and from there only into the
program's environment. A machine's answers are untrusted: their size is limited and control characters are removed.

`agent`, `machine_store`, `supervisor` and `mux` run on the machine, with Python 3.8 or later and the standard library
only.
"""

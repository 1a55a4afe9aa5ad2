"""This package turns a machine with SSH into a node: a connection, an agent program, a bootstrap script and a
tunnel.

The controller opens one SSH connection to each machine (`connection`) and speaks over it to a small program that it
has put there (`agent`). The agent sells the machine to one slice at a time, runs the bootstrap script of an image
(`image`, `bootstrap`), and starts the node's program under a supervisor. The supervisor carries TCP streams between the
node and the controller over a resumable multiplexer (`mux`), so that a machine needs no route to the controller, and a
connection that breaks and comes back loses no byte. `machine` holds all of this together for one machine.

Host keys are always checked against keys that were known before the first connection. What a program is started with
may hold private keys: it goes over the connection to the agent's standard input, and from there only into the
environment of the program. What a machine answers is untrusted: sizes are limited and control characters are removed.

`agent` and `mux` run on the machine with any Python from 3.8 on; they use the standard library only.
"""

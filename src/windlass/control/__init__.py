"""Control is the loop: it observes, plans, records what it decides, and acts.

Data flows one way. `observe` reads the workload and the providers. `reconcile` applies observations to the state of
every slice, plans, and applies the plan; it is pure. `record` writes what changed to the journal, in one transaction,
before anything is done. Only then does `act` make the outside calls that the recorded states ask for. A call never
changes state: the next observation does.

After a crash the journal is all that is needed to go on. Everything that reports to people (`report`) reads the journal
too, never the process.
"""

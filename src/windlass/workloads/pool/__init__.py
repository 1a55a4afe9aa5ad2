"""The elastic pool as a workload: its task book places calls on the slots of nodes, an engine carries them out.

`engine` is the contract of an engine, `runner` what happens on a slot. An engine never chooses: which call goes to
which slot is the book's decision, by the planner's own fit rule, so what runs where is known exactly, and a fence is as
good as the book.
"""

"""Control: the loop that observes, plans, writes down what it decides, and acts.

Data flows one way. What the workload and the providers show comes in as observations (`observing`); `fold` makes the
next book of them, a record for every slice; the planner reads a snapshot of the book, and what it decides is written
into the book as transitions (`deciding`). All that is remembered is one chronicle; what changed in it goes into the
journal, in one transaction, before anything is done. Only then are the calls made that the states in the book ask for
(`acting`), and what they achieve is seen by the next look: an act never changes a record.

So nothing but the journal is needed to go on after a crash, and whoever wants to know what is going on, or what was
(`story`, `picture`, `biography`), reads the journal too. ARCHITECTURE.md has the files in the order of a pass.
"""

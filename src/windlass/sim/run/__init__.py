"""Run executes one simulation script: the production loop on a virtual clock."""

"""The local provider launches slices as groups of processes on this computer."""

"""Scale-down decides which slices to cancel, mark, cordon or release, one module per rule."""

"""Transport moves values and output between the program and the slots."""

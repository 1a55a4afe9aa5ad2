"""Transport carries values and printed output between the program and the slots."""

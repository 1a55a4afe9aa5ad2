"""The AWS provider sells machines of Amazon EC2."""

"""The AWS provider launches machines on Amazon EC2."""

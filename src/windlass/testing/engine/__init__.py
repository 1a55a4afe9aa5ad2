"""The conformance kit for pool engines."""

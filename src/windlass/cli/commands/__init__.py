"""Commands holds one module or package per command."""

"""The Ray engine carries calls through a private Ray cluster."""

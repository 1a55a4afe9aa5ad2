"""This package decides who may use the server: tokens, sessions and login links, and the check of every request."""

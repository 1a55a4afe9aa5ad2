"""This package controls access to the server: tokens, sessions, login links, and the check of every request."""

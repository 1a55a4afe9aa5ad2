"""Who may use the server: tokens, sessions and login links, and the check that every request passes first."""

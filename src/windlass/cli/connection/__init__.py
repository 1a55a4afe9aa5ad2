"""Connection finds the configuration, opens the journal and sends orders."""

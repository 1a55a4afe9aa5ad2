"""These commands are for operators: orders to a controller, tokens, configuration, bootstrap of machines."""

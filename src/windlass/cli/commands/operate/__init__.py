"""Commands for operators: orders to a controller, tokens, configuration, bootstrap of machines."""

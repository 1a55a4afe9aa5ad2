"""Commands for operators: orders to a controller, tokens, configuration, preparation of machines."""

"""This package has one module or package per command, in folders by the headings of ``windlass --help``."""

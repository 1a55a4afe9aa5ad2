"""This package makes the objects to install: two custom resource definitions, roles, the controller's deployment."""

"""What is installed in a cluster: two custom resource definitions, roles, and the controller's deployment."""

"""Record maps the state of the controller to journal entries and charges every slice-second to an account."""

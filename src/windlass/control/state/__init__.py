"""State holds what the controller knows about every slice, and how it is compared and encoded."""

"""Report turns the journal into data for people: current status, events, the history of one slice or demand."""

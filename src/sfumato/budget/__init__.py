"""What privacy costs: mechanisms that add noise, the events they ran, and what the events add up to."""

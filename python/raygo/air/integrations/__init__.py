"""Services that keep track of experiments."""

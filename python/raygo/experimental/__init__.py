"""Under the name that users of Ray know: progress bars of tasks."""

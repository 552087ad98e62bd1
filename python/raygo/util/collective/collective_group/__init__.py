"""What a process has of a group."""

"""What Ray has under this name."""

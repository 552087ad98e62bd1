"""Horovod is not in raygo."""

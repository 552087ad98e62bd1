"""Asking for machines.  A session in this process has one machine and cannot grow."""

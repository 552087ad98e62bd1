"""The few things under ``ray._private`` that libraries look at."""

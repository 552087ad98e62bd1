"""What runs a search: the driver's loop, the trials' processes, the files that a search is found again by."""

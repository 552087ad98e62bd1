"""Numbers that several modules share."""

INT32_MAX = 2**31 - 1

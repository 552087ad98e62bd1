"""Ways from other libraries' callbacks to `raygo.tune.report`."""

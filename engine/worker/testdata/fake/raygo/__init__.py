"""A stand-in for the package, so that the template can be tested without the binding."""

"""Imported by the template for what workers may use later."""

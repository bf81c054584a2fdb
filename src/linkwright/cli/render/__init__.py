"""Screens as pure functions: values and a width in, lines of styled text out. Nothing here reads or prints."""

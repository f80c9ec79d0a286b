"""Demos of what comes from the web: a small site on loopback, whose pages change, and its feed."""

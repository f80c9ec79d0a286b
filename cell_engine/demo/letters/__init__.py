"""The demo `letters`: columns that write, from a role, a style and facts."""

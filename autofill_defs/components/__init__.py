"""What `dg` finds in this project's registry."""

"""The command line, `autofill`. Nothing heavy is imported before the command that needs it runs."""

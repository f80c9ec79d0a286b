"""What makes a whole file or frame impossible to load."""

from cell_engine.errors import AutofillError


class LoadError(AutofillError):
    """A file or frame that cannot be loaded, or not any further; the message says where, and what is in already."""

    exit_code = 2

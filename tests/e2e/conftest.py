from tests.stack.conftest import home

__all__ = ["home"]

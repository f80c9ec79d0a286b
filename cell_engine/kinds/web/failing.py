"""How a fetch ends without a page."""

from __future__ import annotations

from cell_engine.kinds.base import ErrorClass, Failure


class FetchError(Exception):
    """Carries the failure of a call from where it is found to where the call ends."""

    def __init__(self, error_class: ErrorClass, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.failure = Failure(error_class, message, retry_after=retry_after)


class TooManyRedirectsError(FetchError):
    """One redirect led to the next, and to no page."""

    def __init__(self, most: int) -> None:
        super().__init__("bad_input", f"More than {most} redirects one after the other lead to no page.")

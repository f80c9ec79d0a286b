"""Logging, configured once per process by its entry point: to stderr, warnings only unless asked, secrets redacted.

Code logs with `get_logger(__name__)` and key-value pairs. Records of other libraries (the standard `logging`) pass
through the same redaction.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import date, time
from decimal import Decimal
from pathlib import PurePath
from uuid import UUID

import structlog
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.typing import EventDict, Processor, WrappedLogger

REDACTED = "***"

# By whole words of the key, so that `tokens_in`, `max_tokens` or `keyboard` stay readable.
_SECRET_KEY = re.compile(
    r"(?:^|_)(?:api_?key|passw(?:or)?d|passphrase|authorization|token|secret|credentials?|cookie)(?:_|$)"
)
_CAMEL_OR_DASH = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-.\s]+")

_SECRETS_IN_TEXT: tuple[tuple[re.Pattern[str], str], ...] = (
    # scheme://user:password@host; greedy, because people forget to escape an @ in a password; bounded (a cloud's login
    # token has a good thousand characters), so that no hostile text takes long.
    (re.compile(r"(://[^\s:/@\"'<>]{0,256}:)[^\s\"'<>]{1,2048}@"), rf"\1{REDACTED}@"),
    # OpenAI-style keys, also when a provider's error echoes them half masked.
    (re.compile(r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_*-]{8,}"), f"sk-{REDACTED}"),
    (re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]+", re.IGNORECASE), rf"\1 {REDACTED}"),
    # password=..., "api_key": "...", Authorization: ..., as in connection strings, URLs, headers and JSON.
    (
        re.compile(
            r"""((?:api[-_]?key|passw(?:or)?d|authorization|(?:access|auth|api|refresh)[-_]?token|secret)["']?\s*[=:]\s*"""
            r"""|\btoken=)(?:(?:Bearer|Basic)\s+\S+|"[^"]*"|'[^']*'|[^\s&,;"'}]+)""",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
)


def redact_text(text: str) -> str:
    """`text` without what looks like a credential: URL passwords, `sk-...` keys, bearer tokens, `password=...`."""
    for pattern, replacement in _SECRETS_IN_TEXT:
        text = pattern.sub(replacement, text)
    return text


def _names_a_secret(key: object) -> bool:
    return _SECRET_KEY.search(_CAMEL_OR_DASH.sub("_", str(key)).lower()) is not None


def redact(value: object) -> object:
    """`value` with credentials replaced, at any depth; objects that are not plain data become their redacted repr."""
    match value:
        case None | bool() | int() | float() | Decimal() | date() | time() | UUID():
            return value
        case str():
            return redact_text(value)
        case PurePath() | BaseException():
            return redact_text(f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value))
        case Mapping():
            return {k: redact(v) if v is None or not _names_a_secret(k) else REDACTED for k, v in value.items()}
        case list() | tuple() | set() | frozenset():
            return [redact(item) for item in value]
        case _:
            return redact_text(repr(value))


def redact_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The processor: redacts every value of a log entry, the message and a formatted traceback among them."""
    return {
        key: REDACTED if value is not None and _names_a_secret(key) else redact(value) for key, value in event.items()
    }


def dispatch_bound(dispatch: int) -> AbstractContextManager[None]:
    """Within it, every entry logged from this task or thread carries the dispatch's id."""
    return bound_contextvars(dispatch=dispatch)


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger that is quiet and redacted also where no entry point configured logging, as in a Dagster process."""
    if not structlog.is_configured():
        _configure_structlog(logging.WARNING, _renderer(json=False))
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(module=name)
    return logger


def configure_logging(verbose: bool, json: bool) -> None:
    """Set up logging of this process; calling it again replaces the former setup.

    Args:
        verbose: also informational entries, else warnings and errors only.
        json: one JSON object a line (for collectors), else lines for people.
    """
    level = logging.INFO if verbose else logging.WARNING
    render = _renderer(json)
    _configure_structlog(level, render)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_PREPARE,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, redact_event, render],
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)


_PREPARE: list[Processor] = [
    merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    # Before the redaction, so that tracebacks pass through it; a renderer's own formatter prints local variables.
    structlog.processors.format_exc_info,
]


def _renderer(json: bool) -> Processor:
    if json:
        return structlog.processors.JSONRenderer(default=repr, ensure_ascii=False)
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)


def _configure_structlog(level: int, render: Processor) -> None:
    structlog.configure(
        processors=[*_PREPARE, redact_event, render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # Looked up at each entry: test runners and daemons swap the stream after this call.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )

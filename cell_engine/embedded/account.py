"""Which system account runs the server. PostgreSQL refuses to run as root, so root lends it another account."""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cell_engine.errors import AutofillError

# All that a child gets of our environment: the server outlives us and must not keep our API keys, and the caller's PG*
# variables would change what it does.
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")


@dataclass(frozen=True)
class Account:
    """A system account; `switch` says whether to become it first, which only root can."""

    uid: int
    gid: int
    switch: bool


@dataclass(frozen=True)
class Finished:
    """How a command ended, and what it printed on both streams."""

    ok: bool
    output: str


def acting_as_root() -> bool:
    return os.geteuid() == 0


def default_account() -> Account:
    """Ourselves; for root, `postgres` if there is one, else `nobody`."""
    if not acting_as_root():
        return Account(os.geteuid(), os.getegid(), switch=False)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, switch=True)
    raise AutofillError(
        "PostgreSQL does not run as root, and this system has neither a 'postgres' nor a 'nobody' user to run it as. "
        "Run autofill as an ordinary user, or set AUTOFILL_DATABASE_URL to a server of your own."
    )


def owner_of(data: Path) -> Account:
    """The account that an existing data directory belongs to.

    Raises:
        AutofillError: somebody else's, or root's own, which no server can use.
    """
    status = data.stat()
    if not acting_as_root():
        if status.st_uid != os.geteuid():
            raise AutofillError(
                f"The database in {data} belongs to user id {status.st_uid}, and you are user id {os.geteuid()}. "
                "Work as that user, or set AUTOFILL_HOME to a folder of your own."
            )
        return default_account()
    if status.st_uid == 0:
        usual = default_account()
        raise AutofillError(
            f"The database in {data} belongs to root, and PostgreSQL does not run as root. "
            f"Give it to the server's account: chown -R {usual.uid}:{usual.gid} {data}"
        )
    return Account(status.st_uid, status.st_gid, switch=True)


def run_as(account: Account, *command: str | Path, text: str = "", keep_open: tuple[int, ...] = ()) -> Finished:
    """Run a command to its end as the account, with `text` as its input; it inherits the `keep_open` descriptors."""
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {"LC_ALL": "C"}
    # A file, not a pipe: a server left behind by the command would hold a pipe open, and we would wait for its end.
    with tempfile.TemporaryFile() as printed:
        try:
            ended = subprocess.run(
                [str(part) for part in command],
                input=text.encode(),
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd="/",
                umask=0o077,
                pass_fds=keep_open,
                user=account.uid if account.switch else None,
                group=account.gid if account.switch else None,
                extra_groups=[] if account.switch else None,
                check=False,
            )
        except PermissionError as error:
            return Finished(ok=False, output=str(error))
        printed.seek(0)
        return Finished(ok=ended.returncode == 0, output=printed.read().decode(errors="replace"))


def can_enter(account: Account, folder: Path) -> bool:
    """Whether the account can reach the folder, asked of the kernel: modes alone say nothing of ACLs and mounts."""
    return not account.switch or run_as(account, "/bin/sh", "-c", 'cd -- "$1"', "sh", folder).ok


def write_as(account: Account, file: Path, text: str) -> None:
    """Replace the text of a file in the account's own folder.

    As the account, since it could put a link in the file's place and make root overwrite something else.
    """
    written = run_as(account, "/bin/sh", "-c", 'cat > "$1"', "sh", file, text=text)
    if not written.ok:
        raise AutofillError(f"Cannot write {file}: {written.output.strip()}")

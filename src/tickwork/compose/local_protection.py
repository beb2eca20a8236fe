"""A server that was given no token protects itself with one of its own; see `system.local_token`."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from tickwork.compose.settings import BadSettings, Settings
from tickwork.compose.starting import check_start
from tickwork.system import local_token as localtoken
from tickwork.system.clock import SystemClock


def protected(settings: Settings) -> Settings:
    """With a token. The same settings where they have one, or where there must not be one: on loopback, because the
    settings say so; beyond it, where the start is refused."""
    if settings.token or settings.unprotected or not localtoken.is_loopback(settings.host):
        return settings
    check_start(settings, SystemClock())  # where nothing can start, nothing is made
    try:
        path = _own_file(settings)
        return msgspec.structs.replace(settings, token=localtoken.own_token(path))
    except localtoken.Unsafe as unsafe:
        raise BadSettings("unsafe_token", str(unsafe), path="token") from None


@contextlib.contextmanager
def announced(
    given: Settings, settings: Settings, bound: tuple[str, int], *, tell: Callable[[str], None]
) -> Iterator[None]:
    """Clients of this user find the token of `found`, where it is the server's own."""
    with contextlib.ExitStack() as stack:
        if settings.token and not given.token:
            try:
                stack.enter_context(localtoken.announced(*bound, settings.token))
            except (localtoken.Unsafe, OSError) as error:
                where = settings.folder / localtoken.FILE
                tell(f"clients cannot find the token automatically ({error}); give them TICKWORK_TOKEN_FILE={where}")
        yield


def given_token(settings: Settings) -> str:
    """The token that a person gave; "" where it is the server's own. Brokers carry messages to workers that cannot know
    the latter, so it seals nothing."""
    try:
        own = _own_file(settings).read_text().strip() if settings.token else ""
    except (OSError, UnicodeDecodeError, localtoken.Unsafe):
        own = ""
    return "" if settings.token == own else settings.token


def _own_file(settings: Settings) -> Path:
    return localtoken.file_of_store(settings.store) if settings.store else settings.folder / localtoken.FILE

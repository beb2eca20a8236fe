"""Keys that a worker holds for requests, and a server for webhooks: from the environment or from a folder of files,
never from a document.

`name` is the variable TICKWORK_SECRET_NAME (upper case, `-` and `.` as `_`), or else the file of that name in the
folder.
Read each time, so that a changed file counts at once; a key is in no message and no `repr`.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from tickwork.core.base.names import check_name

VARIABLE = "TICKWORK_SECRET_"


class SecretMissing(Exception):
    pass


class Secrets:
    def __init__(self, env: Mapping[str, str], *, folder: Path | None = None) -> None:
        self._env, self._folder = env, folder

    def get(self, name: str) -> bytes:
        """Raises `SecretMissing`, which says where it was looked for."""
        check_name(name, path="sign", kind="secret")  # it becomes part of a path
        variable = variable_of(name)
        text = self._env.get(variable) or self._file(name)
        if not text:
            where = f" or put the file {name} into the worker's secrets folder" if self._folder else ""
            message = f"this worker has no secret {name!r}; set {variable} in its environment{where}"
            raise SecretMissing(message if self._folder else f"{message}, or name a folder in its setting secrets")
        return text.encode()

    def _file(self, name: str) -> str:
        if self._folder is None:
            return ""
        try:
            return (self._folder / name).read_text().strip()
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise SecretMissing(f"the secret {name!r} cannot be read: {type(error).__name__}") from None


def variable_of(name: str) -> str:
    return VARIABLE + re.sub(r"[^A-Z0-9]", "_", name.upper())

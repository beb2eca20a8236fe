"""Servers for tests that no wheel carries: Debian's packages, unpacked into folders of this project, installed nowhere.

Where the machine has one already there is nothing to do; where its packages cannot be had, that is said, and the tests
that want it are skipped. It needs no rights and changes nothing outside these folders.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

TOOLS = Path(__file__).resolve().parent.parent / ".tools"
ERLANG = "usr/lib/erlang"
OF_ERLANG = (
    "asn1 base crypto eldap ftp inets mnesia os-mon parsetools public-key runtime-tools snmp ssl syntax-tools tftp "
    "tools xmerl"
)
DOWNLOAD_S = 120.0


class Server(NamedTuple):
    program: str  # below the root of the machine, or of its folder
    packages: tuple[str, ...]
    libraries: tuple[str, ...] = ()  # beginnings of names: each release of Debian has its own


SERVERS = {
    "rabbitmq": Server(
        "usr/lib/rabbitmq/bin/rabbitmq-server", ("rabbitmq-server", *(f"erlang-{part}" for part in OF_ERLANG.split()))
    ),
    "pgbouncer": Server("usr/sbin/pgbouncer", ("pgbouncer",), ("libevent-2", "libc-ares", "libcares")),
}


def main() -> int:
    for name, server in SERVERS.items():
        if not (Path("/") / server.program).exists() and not (TOOLS / name / ".ready").exists():
            _get(name, server)
    return 0


def _get(name: str, server: Server) -> None:
    folder = TOOLS / name
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{name} is downloaded for the tests", flush=True)
    try:
        _fetch(folder / "packages", server)
        for package in sorted((folder / "packages").glob("*.deb")):
            _run("dpkg-deb", "-x", str(package), str(folder))
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error).encode()).decode().strip().splitlines()
        print(f"{name} is not to be had here, so its tests are skipped: {said[-1] if said else error}")
        return
    shutil.rmtree(folder / "packages")
    if (script := folder / ERLANG / "bin" / "erl").exists():  # it names the folder that it was made for
        script.write_text(script.read_text().replace(f"ROOTDIR=/{ERLANG}", f"ROOTDIR={folder / ERLANG}"))
    (folder / ".ready").touch()


def _fetch(folder: Path, server: Server) -> None:
    """By the machine's own lists of packages, or by lists of our own where it has none or old ones."""
    folder.mkdir(parents=True)
    try:
        _download(folder, server)
    except subprocess.SubprocessError:
        (folder / "lists" / "partial").mkdir(parents=True)
        own = ("-o", f"Dir::State::Lists={folder / 'lists'}", "-o", f"Dir::Cache={folder / 'cache'}")
        _run("apt-get", "-qq", *own, "update")
        _download(folder, server, *own)


def _download(folder: Path, server: Server, *options: str) -> None:
    needed = _run("apt-cache", *options, "depends", *server.packages).split() if server.libraries else ()
    libraries = sorted({one for one in needed if one.startswith(server.libraries)})
    sandbox = ("-o", "APT::Sandbox::User=root")
    _run("apt-get", "-qq", *sandbox, *options, "download", *server.packages, *libraries, folder=folder)


def _run(*command: str, folder: Path | None = None) -> str:
    done = subprocess.run(
        command, cwd=folder, check=True, timeout=DOWNLOAD_S, stdin=subprocess.DEVNULL, capture_output=True
    )
    return done.stdout.decode()


if __name__ == "__main__":
    sys.exit(main())

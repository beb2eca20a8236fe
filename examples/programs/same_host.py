"""Download, process and upload on one host: the queue of the later tasks is what the first one returned.

Each host runs one worker for the shared queue and for its own: `tickwork worker same_host.py --queues default,$HOST`
with `--pass-env HOST`.

    tickwork run examples/programs/same_host.py:transfer -i url=https://example.org/video
"""

import os
from dataclasses import dataclass

import tickwork as tw


@dataclass
class Downloaded:
    queue: str
    path: str


@tw.task
def download(url: str) -> Downloaded:
    return Downloaded(queue=os.environ.get("HOST", "default"), path=f"{url.rpartition('/')[2]}.download")


@tw.task
def process(path: str) -> str:
    return f"{path}.processed"


@tw.task
def upload(path: str) -> str:
    return f"uploaded {path}"


@tw.workflow
def transfer(url: str = "https://example.org/video") -> str:
    file = download(url)
    done = process.using(queue=file.queue)(file.path)
    return upload.using(queue=file.queue)(done)

"""Three witnesses: how many starts there were by when, whom the database called owner of what, and who said so."""

import asyncio
import re
import time
from bisect import bisect_left

import httpx2

from chaos.deployment import Stage

LOOK_S = 0.1
EPOCHS_S = 0.25
WINDOW_S = 2.0
BELIEFS_S = 0.5
OWNED = re.compile(r'^tickwork_epoch\{partition="(\d+)"\}', re.MULTILINE)


class Starts:
    """Lines of the ledger over time; `of` names the tasks that count."""

    def __init__(self, stage: Stage, *, of: str = "") -> None:
        self.count = 0
        self._mark = f"/{of} ".encode() if of else b"\n"
        self._path = stage.ledger
        self._times: list[float] = []
        self._counts: list[int] = []

    async def run(self) -> None:
        with self._path.open("rb") as ledger:
            while True:
                self.count += ledger.read().count(self._mark)
                self._times.append(time.monotonic())
                self._counts.append(self.count)
                await asyncio.sleep(LOOK_S)

    def between(self, begin: float, end: float) -> int:
        return self._at(end) - self._at(begin)

    def _at(self, moment: float) -> int:
        place = bisect_left(self._times, moment)
        return self._counts[min(place, len(self._counts) - 1)]

    def rate(self, begin: float, end: float) -> float:
        return self.between(begin, end) / (end - begin)

    async def back(self, since: float, rate: float, *, within_s: float) -> float | None:
        """How long after `since` a stretch of `WINDOW_S` begins that has this rate. None: not within that time."""
        begin = since
        while begin - since <= within_s:
            while self._times[-1] < begin + WINDOW_S:
                await asyncio.sleep(LOOK_S)
            if self.rate(begin, begin + WINDOW_S) >= rate:
                return begin - since
            begin += LOOK_S
        return None


class Epochs:
    """What the database says of epochs and owners, again and again: an epoch has one owner, and none comes back."""

    def __init__(self, stage: Stage) -> None:
        self.owners: dict[tuple[int, int], str] = {}
        self.wrong: list[str] = []
        self.looks = 0
        self._stage = stage
        self._last: dict[int, int] = {}

    async def run(self) -> None:
        while True:
            try:
                rows = await self._stage.ask_database("select id, epoch, owner from tickwork.partitions")
            except Exception:  # it is down: that is the point
                await asyncio.sleep(EPOCHS_S)
                continue
            self.looks += 1
            for partition, epoch, owner in rows:
                if epoch < self._last.get(partition, 0):
                    self.wrong.append(f"partition {partition}: epoch {epoch} after {self._last[partition]}")
                if self.owners.setdefault((partition, epoch), owner) != owner:
                    self.wrong.append(f"partition {partition}: epoch {epoch} of {owner} and another")
                self._last[partition] = epoch
            await asyncio.sleep(EPOCHS_S)

    @property
    def changes(self) -> int:
        """Take-overs beside the first."""
        return sum(epoch for epoch in self._last.values()) - len(self._last)


class Beliefs:
    """What each node says of itself, all at the same moment. One that does not answer says nothing."""

    def __init__(self, stage: Stage) -> None:
        self.looks = 0
        self.longest_s = 0.0  # that two of them said the same of a partition
        self.shared = 0  # looks at which they did
        self._nodes = {node.name: node.url for node in stage.nodes}
        self._since: dict[tuple[int, tuple[str, ...]], float] = {}

    async def run(self) -> None:
        async with httpx2.AsyncClient(timeout=BELIEFS_S, trust_env=False) as http:
            while True:
                asked = time.monotonic()
                owned = await asyncio.gather(*(self._ask(http, url) for url in self._nodes.values()))
                self.note(dict(zip(self._nodes, owned, strict=True)), asked)
                await asyncio.sleep(BELIEFS_S)

    async def _ask(self, http: httpx2.AsyncClient, url: str) -> list[int]:
        try:
            return [int(one) for one in OWNED.findall((await http.get(f"{url}/metrics")).text)]
        except httpx2.HTTPError:
            return []

    def note(self, owned: dict[str, list[int]], now: float) -> None:
        self.looks += 1
        shared = {}
        for partition in sorted({one for several in owned.values() for one in several}):
            names = tuple(name for name, several in owned.items() if partition in several)
            if len(names) > 1:
                shared[partition, names] = self._since.get((partition, names), now)
                self.longest_s = max(self.longest_s, now - shared[partition, names])
        self._since = shared
        self.shared += bool(shared)

"""Clients: they submit at a steady rate through any node, and ask again under the same name until they are told.

Some of the runs have a key, which the home partition remembers; others have an id of the client's own, by which they
are spread; and some are enqueued by SQL, in a transaction that is tried again under the same keys. What was
acknowledged is written down here, with the moment.
"""

import asyncio
import random
import time
import uuid

import asyncpg
import httpx2

TASKS = {"one": 1, "chain": 3, "fan": 6, "long": 1, "again": 1, "later": 2, "carried": 1, "stormy": 1, "poison": 1}
MIX = ("one",) * 8 + ("chain",) * 4 + ("fan",) * 3 + ("again",) * 2 + ("long", "later")
WITH_BROKER = MIX + ("carried",) * 10
BATCH = 20
ENQUEUE = "select tickwork.enqueue($1, key => $2)"
ASK_AGAIN = (429, 502, 503, 504, 507)


class Load:
    def __init__(
        self,
        urls: list[str],
        *,
        rate: float,
        seed: int,
        clients: int = 4,
        mix: tuple[str, ...] = MIX,
        database: str = "",
    ) -> None:
        """`rate`: tasks a second, over all clients. `database`: where some of them are enqueued."""
        self.accepted: dict[str, tuple[str, str]] = {}  # by name: id, workflow
        self.failing: dict[str, str] = {}  # by name: id, of what can only fail
        self.accepted_at: list[float] = []  # one per batch, monotonic
        self.tasks = 0  # of what was accepted
        self.asked_again = 0
        self.enqueued = 0
        self._database = database
        self.wrong: list[str] = []
        self._urls, self._rate, self._clients, self._mix = urls, rate, clients, mix
        self._seed = seed
        self._owed = 0.0
        self._paced_at = 0.0
        self._over = False
        self._http = httpx2.AsyncClient(timeout=httpx2.Timeout(20, connect=2), trust_env=False)

    async def run(self) -> None:
        self._paced_at = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(self._clients):
                group.create_task(self._submit_for_ever(number))

    def stop(self) -> None:
        """What is under way is asked until it is answered."""
        self._over = True

    async def close(self) -> None:
        await self._http.aclose()

    async def _submit_for_ever(self, number: int) -> None:
        rng = random.Random(f"{self._seed} client {number}")
        while not self._over:
            now = time.monotonic()
            self._owed += (now - self._paced_at) * self._rate
            self._paced_at = now
            if self._owed <= 0:
                await asyncio.sleep(0.005)
                continue
            workflows = [rng.choice(self._mix) for _ in range(rng.choice((1, BATCH, BATCH)))]
            self._owed -= sum(TASKS[one] for one in workflows)
            await self.submit(workflows, rng)

    async def submit(self, workflows: list[str], rng: random.Random) -> list[str]:
        """Their ids, when all of them are accepted."""
        names = [str(uuid.UUID(int=rng.getrandbits(128))) for _ in workflows]
        field = rng.choice(("key", "id", "sql") if self._database and "poison" not in workflows else ("key", "id"))
        if field == "sql":
            await self._enqueue(workflows, names)
            return []
        body = {"runs": [{"workflow": one, field: name} for one, name in zip(workflows, names, strict=True)]}
        told = (await self.ask("POST", "/v1/runs/batch", body, rng))["runs"]
        self.accepted_at.append(time.monotonic())
        for workflow, name, run in zip(workflows, names, told, strict=True):
            if "id" not in run:
                self.wrong.append(f"{name} was refused: {run}")
            elif field == "id" and run["id"] != name:
                self.wrong.append(f"{name} was accepted as {run['id']}")
            elif workflow == "poison":
                self.failing[name] = run["id"]
            else:
                self.accepted[name] = (run["id"], workflow)
                self.tasks += TASKS[workflow]
        return [run.get("id", "") for run in told]

    async def _enqueue(self, workflows: list[str], names: list[str]) -> None:
        """Nobody can tell whether a commit without an answer happened, so its runs are known by their keys."""
        while True:
            try:
                connection = await asyncpg.connect(self._database, timeout=5)
                try:
                    async with connection.transaction():
                        for workflow, name in zip(workflows, names, strict=True):
                            await connection.fetchval(ENQUEUE, workflow, name, timeout=10)
                    break
                finally:
                    connection.terminate()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                self.asked_again += 1
                await asyncio.sleep(0.1)
        self.enqueued += len(names)
        self.accepted_at.append(time.monotonic())
        for workflow, name in zip(workflows, names, strict=True):
            self.accepted[name] = ("", workflow)
            self.tasks += TASKS[workflow]

    def learn(self, ids: dict[str, str]) -> None:
        """The ids of runs by their keys."""
        for name, (run, workflow) in self.accepted.items():
            if not run and name in ids:
                self.accepted[name] = (ids[name], workflow)

    async def refused(self, method: str, path: str, body: object, rng: random.Random) -> bool:
        """Whether this is told to be wrong, by whoever answers."""
        while True:
            try:
                answer = await self._http.request(method, rng.choice(self._urls) + path, json=body)
            except httpx2.TransportError:
                continue
            if answer.status_code not in ASK_AGAIN:
                return 400 <= answer.status_code < 500
            await asyncio.sleep(0.05)

    async def ask(self, method: str, path: str, body: object, rng: random.Random) -> dict:
        """Any node, until one answers."""
        while True:
            url = rng.choice(self._urls)
            try:
                answer = await self._http.request(method, url + path, json=body)
            except httpx2.TransportError:
                pass
            else:
                if answer.status_code < 300:
                    return answer.json() if answer.content else {}
                if answer.status_code not in ASK_AGAIN:
                    raise AssertionError(f"{method} {path}: {answer.status_code} {answer.text[:500]}")
            self.asked_again += 1
            await asyncio.sleep(0.02 + 0.08 * rng.random())

"""A Kafka of one process: logs, and a group whose partitions are dealt out anew whenever somebody joins, leaves or does
not poll in time. As in Kafka, whoever gets a partition begins where the group has committed, and whoever lost it can
commit no more.
"""

import asyncio
from collections import defaultdict
from typing import NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError

PARTITIONS = 4


class Record(NamedTuple):
    topic: str
    offset: int
    value: bytes


class Cluster:
    def __init__(self) -> None:
        self.logs: dict[TopicPartition, list[bytes]] = defaultdict(list)
        self.committed: dict[TopicPartition, int] = {}
        self.members: list[Consumer] = []
        self.rebalances = self.refused = 0
        self._turn = 0

    def append(self, topic: str, value: bytes) -> None:
        self._turn += 1
        self.logs[TopicPartition(topic, self._turn % PARTITIONS)].append(value)

    def join(self, consumer: "Consumer") -> None:
        if consumer not in self.members:
            self.members.append(consumer)
        self.rebalance()

    def leave(self, consumer: "Consumer") -> None:
        """By itself, or because it did not poll for too long."""
        if consumer in self.members:
            self.members.remove(consumer)
            consumer.places.clear()
            self.rebalance()

    def rebalance(self) -> None:
        self.rebalances += 1
        topics = sorted({topic for member in self.members for topic in member.subscribed})
        for member in self.members:
            member.places.clear()
        for turn, place in enumerate(TopicPartition(topic, at) for topic in topics for at in range(PARTITIONS)):
            wanting = [member for member in self.members if place.topic in member.subscribed]
            wanting[(turn + self.rebalances) % len(wanting)].places[place] = self.committed.get(place, 0)


class Producer:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def send(self, topic: str, value: bytes, headers=()) -> "asyncio.Future[None]":
        self._cluster.append(topic, value)
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def send_and_wait(self, topic: str, value: bytes, headers=()) -> None:
        await self.send(topic, value)

    async def partitions_for(self, topic: str) -> set[int]:
        return set(range(PARTITIONS))

    async def stop(self) -> None: ...


class Consumer:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.subscribed: list[str] = []
        self.places: dict[TopicPartition, int] = {}  # what it has been dealt, and where it reads next

    def subscribe(self, topics: list[str]) -> None:
        self.subscribed = topics
        self._cluster.join(self)

    def assignment(self) -> set[TopicPartition]:
        return set(self.places)

    async def getmany(self, *some: TopicPartition, timeout_ms: int, max_records: int) -> dict:
        if self.subscribed and self not in self._cluster.members:
            self._cluster.join(self)  # it polls again
        ends = asyncio.get_running_loop().time() + timeout_ms / 1000
        while not (found := self._read(some, max_records)) and asyncio.get_running_loop().time() < ends:
            await asyncio.sleep(0.002)
        return found

    def _read(self, some: tuple[TopicPartition, ...], limit: int) -> dict:
        found = {}
        for place in some or tuple(self.places):
            if (at := self.places.get(place)) is not None and (values := self._cluster.logs[place][at : at + limit]):
                found[place] = [Record(place.topic, at + turn, value) for turn, value in enumerate(values)]
                self.places[place] = at + len(values)
        return found

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        await asyncio.sleep(0)
        if any(place not in self.places for place in offsets):
            self._cluster.refused += 1
            raise CommitFailedError
        self._cluster.committed.update(offsets)

    async def committed(self, place: TopicPartition) -> int | None:
        return self._cluster.committed.get(place)

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: len(self._cluster.logs[place]) for place in places}

    async def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 0)

    async def topics(self) -> set[str]:
        return {place.topic for place in self._cluster.logs}

    async def stop(self) -> None:
        self._cluster.leave(self)

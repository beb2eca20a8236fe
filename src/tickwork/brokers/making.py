"""Which lane an address means."""

from urllib.parse import urlsplit

from tickwork.brokers.memory import MemoryLane, broker_named
from tickwork.core.base.errors import Refused
from tickwork.ports.broker import Lane, Seal

SCHEMES = "postgresql://, nats://, amqp://, kafka:// or memory:"


def make_lane(url: str, *, seal: Seal) -> Lane:
    """Raises `Refused` where nobody knows what it means. Nothing is connected yet."""
    match urlsplit(url).scheme:
        case "memory":
            return MemoryLane(broker_named(url), seal=seal)
        case "postgres" | "postgresql":
            from tickwork.brokers.postgres import PostgresLane

            return PostgresLane(url, seal=seal)
        case "nats" | "tls":
            from tickwork.brokers.nats import NatsLane

            return NatsLane(url, seal=seal)
        case "amqp" | "amqps":
            from tickwork.brokers.rabbitmq import RabbitLane

            return RabbitLane(url, seal=seal)
        case "kafka":
            from tickwork.brokers.kafka import KafkaLane

            return KafkaLane(url, seal=seal)
        case scheme:
            raise Refused("bad_setting", f"{scheme or 'that'} is no lane; use {SCHEMES}", path="lane")

"""Which lane an address means."""

from urllib.parse import urlsplit

from tickwork.brokers.memory import MemoryBroker, broker_named
from tickwork.core.base.errors import Refused
from tickwork.ports.broker import Broker, EnvelopeCodec

SCHEMES = "postgresql://, nats://, amqp://, kafka:// or memory:"


def make_lane(url: str, *, seal: EnvelopeCodec) -> Broker:
    """Raises `Refused` where nobody knows what it means. Nothing is connected yet."""
    match urlsplit(url).scheme:
        case "memory":
            return MemoryBroker(broker_named(url), seal=seal)
        case "postgres" | "postgresql":
            from tickwork.brokers.postgres import PostgresBroker

            return PostgresBroker(url, seal=seal)
        case "nats" | "tls":
            from tickwork.brokers.nats import NatsBroker

            return NatsBroker(url, seal=seal)
        case "amqp" | "amqps":
            from tickwork.brokers.rabbitmq import RabbitBroker

            return RabbitBroker(url, seal=seal)
        case "kafka":
            from tickwork.brokers.kafka import KafkaBroker

            return KafkaBroker(url, seal=seal)
        case scheme:
            raise Refused("bad_setting", f"{scheme or 'that'} is no lane; use {SCHEMES}", path="lane")

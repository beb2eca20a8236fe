"""Choose the broker by the scheme of its address."""

from urllib.parse import urlsplit

from tickwork.brokers.memory import MemoryBroker, broker_named
from tickwork.core.base.errors import Refused
from tickwork.ports.broker import Broker, BrokerOptions

SCHEMES = "postgresql://, nats://, amqp://, kafka:// or memory:"


def make_broker(url: str, options: BrokerOptions) -> Broker:
    """Return a broker that is not connected yet. Raises `Refused` for an unknown scheme."""
    match urlsplit(url).scheme:
        case "memory":
            return MemoryBroker(broker_named(url), options)
        case "postgres" | "postgresql":
            from tickwork.brokers.postgres import PostgresBroker

            return PostgresBroker(url, options)
        case "nats" | "tls":
            from tickwork.brokers.nats import NatsBroker

            return NatsBroker(url, options)
        case "amqp" | "amqps":
            from tickwork.brokers.rabbitmq import RabbitBroker

            return RabbitBroker(url, options)
        case "kafka":
            from tickwork.brokers.kafka import KafkaBroker

            return KafkaBroker(url, options)
        case scheme:
            raise Refused("bad_setting", f"{scheme or url!r} is not a scheme of a broker; use {SCHEMES}", path="lane")

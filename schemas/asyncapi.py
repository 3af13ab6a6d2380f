"""The AsyncAPI document: every topic of the contract, what lies in it, and who writes it.

Operations are seen from minutewheel: it receives commands, and sends due events.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from schemas.commands import COMMAND_TYPES
from schemas.events import DUE_EVENT_TYPE
from schemas.instants import DAY_MS

PREFIX: Final = "reminders."
PARTITIONS: Final = 4
CONTRACT_VERSION: Final = "1.0.0"
BINDING_VERSION: Final = "0.5.0"
Json = dict[str, Any]

ROUTING_KEY: Final[Json] = {
    "type": "string",
    "description": "The reminder's id up to its first `/`; the partition is murmur2 of it.",
}


class Topic(NamedTuple):
    """One topic of the contract. `retention_d` in days; None where it is compacted."""

    description: str
    messages: tuple[str, ...]
    sends: bool
    receives: bool
    retention_d: int | None
    compaction_lag_d: int = 0


TOPICS: Final[dict[str, Topic]] = {
    "commands": Topic(
        "What upstream services want: plain JSON, CloudEvents binary or CloudEvents structured.",
        (*COMMAND_TYPES, "cloudEvent", "cancelByKey"),
        sends=False,
        receives=True,
        retention_d=7,
    ),
    "state": Topic(
        "The stored record of every reminder: the truth from which stores are rebuilt.",
        ("storedReminder", "forgotten"),
        sends=True,
        receives=True,
        retention_d=None,
        compaction_lag_d=7,
    ),
    "due": Topic(
        "Due events, each exactly once for readers at read_committed, and their revocations.",
        ("dueEvent", "revocation"),
        sends=True,
        receives=True,
        retention_d=7,
    ),
    "outcomes": Topic(
        "What became of each attempt. Anyone who consumes `due` may write them.",
        ("outcome",),
        sends=True,
        receives=True,
        retention_d=30,
    ),
    "replies": Topic(
        "Answers to the commands that asked for one.",
        ("reply",),
        sends=True,
        receives=False,
        retention_d=1,
    ),
    "rejected": Topic(
        "What was refused: the bytes untouched, the reason in headers.",
        ("rejected",),
        sends=True,
        receives=False,
        retention_d=30,
    ),
    "dead": Topic(
        "Reminders that were given up.",
        ("deadLetter",),
        sends=True,
        receives=False,
        retention_d=30,
    ),
    "suppressions": Topic(
        "Who may not be contacted, and quiet hours. A null value lifts one.",
        ("suppression", "suppressionLifted"),
        sends=False,
        receives=True,
        retention_d=None,
    ),
    "pressure": Topic(
        "How much each partition owes per minute, hour and day; every figure is absolute.",
        ("pressure",),
        sends=True,
        receives=True,
        retention_d=None,
    ),
}


def asyncapi(rejected_headers: Json) -> Json:
    """The document under the default prefix. `rejected_headers` is their JSON Schema."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "minutewheel",
            "version": CONTRACT_VERSION,
            "description": "Durable reminders for Kafka: never early, exactly once. The version is "
            "the contract's: adding raises its second figure, changing or taking away its first.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {name: _channel(name, topic) for name, topic in TOPICS.items()},
        "operations": _operations(),
        "components": {"messages": _messages(rejected_headers)},
    }


def _channel(name: str, topic: Topic) -> Json:
    configuration: Json = {"cleanup.policy": ["delete" if topic.retention_d else "compact"]}
    if topic.retention_d is not None:
        configuration["retention.ms"] = topic.retention_d * DAY_MS
    if topic.compaction_lag_d:
        configuration["min.compaction.lag.ms"] = topic.compaction_lag_d * DAY_MS
    return {
        "address": PREFIX + name,
        "title": name,
        "description": topic.description,
        "messages": {
            message: {"$ref": f"#/components/messages/{message}"} for message in topic.messages
        },
        "bindings": {
            "kafka": {
                "topic": PREFIX + name,
                "partitions": PARTITIONS,
                "topicConfiguration": configuration,
                "bindingVersion": BINDING_VERSION,
            }
        },
    }


def _operations() -> Json:
    operations: Json = {}
    for name, topic in TOPICS.items():
        for action, takes in (("receive", topic.receives), ("send", topic.sends)):
            if takes:
                operations[action + name.capitalize()] = {
                    "action": action,
                    "channel": {"$ref": f"#/channels/{name}"},
                    "messages": [
                        {"$ref": f"#/channels/{name}/messages/{message}"}
                        for message in topic.messages
                    ],
                }
    operations["receiveCommands"]["reply"] = {
        "channel": {"$ref": "#/channels/replies"},
        "messages": [{"$ref": "#/channels/replies/messages/reply"}],
    }
    return operations


def _messages(rejected_headers: Json) -> Json:
    messages = {name: _command(name) for name in COMMAND_TYPES}
    messages |= {
        "cloudEvent": _message("A command in CloudEvents structured form.", "cloud-event"),
        "cancelByKey": _tombstone("A null value cancels the reminder named by the key."),
        "dueEvent": _message("A reminder is due.", "due-event", headers=_due_headers()),
        "revocation": _message("A due event is taken back.", "revocation"),
        "outcome": _message("What became of one attempt.", "outcome"),
        "reply": _message("What a command came to.", "reply"),
        "deadLetter": _message("A reminder that was given up.", "dead-letter"),
        "suppression": _message("Who may not be contacted.", "suppression", key=_recipient_key()),
        "suppressionLifted": _tombstone("The recipient may be contacted.", key=_recipient_key()),
        "forgotten": _tombstone("The reminder is forgotten.", key=_id_key()),
    }
    messages["storedReminder"] = _opaque(
        "A stored reminder: a header and a msgpack body, documented in schemas/reminder.py. "
        "Internal: read it through minutewheel.",
        key=_id_key(),
    )
    messages["rejected"] = _opaque(
        "The refused record as it came, its own headers included, and why it was refused.",
        key={"type": "string", "description": "The key of the refused record."},
    ) | {"headers": rejected_headers}
    messages["pressure"] = {
        "summary": "The pending counts of one partition.",
        "payload": {"type": "object"},
        "bindings": _key({"type": "string", "description": "The partition's number."}),
    }
    return messages


def _command(name: str) -> Json:
    headers = {
        "type": "object",
        "description": "Given in CloudEvents binary form; the value may then leave out `type`.",
        "properties": {
            "ce_specversion": {"type": "string", "const": "1.0"},
            "ce_type": {"type": "string", "const": f"reminder.{name}.v1"},
            "ce_id": {"type": "string"},
            "ce_source": {"type": "string"},
        },
    }
    return _message(f"The command `{name}`.", name, headers=headers)


def _due_headers() -> Json:
    text = {"type": "string"}
    return {
        "type": "object",
        "properties": {
            "fire-id": text,
            "attempt": text,
            "ce_specversion": {"type": "string", "const": "1.0"},
            "ce_type": {"type": "string", "const": DUE_EVENT_TYPE},
            "ce_source": text,
            "ce_id": text,
            "ce_time": text,
            "traceparent": text | {"description": "The span that asked: link to it."},
        },
        "required": ["fire-id", "attempt"],
    }


def _message(
    summary: str, schema: str, *, key: Json = ROUTING_KEY, headers: Json | None = None
) -> Json:
    message: Json = {"summary": summary, "contentType": "application/json"}
    if headers is not None:
        message["headers"] = headers
    message["payload"] = {"$ref": f"./json/{schema}.v1.json"}
    return message | {"bindings": _key(key)}


def _opaque(summary: str, key: Json) -> Json:
    return {
        "summary": summary,
        "contentType": "application/octet-stream",
        "payload": {"type": "string", "format": "binary"},
        "bindings": _key(key),
    }


def _tombstone(summary: str, key: Json = ROUTING_KEY) -> Json:
    return {"summary": summary, "payload": {"type": "null"}, "bindings": _key(key)}


def _key(schema: Json) -> Json:
    return {"kafka": {"key": schema, "bindingVersion": BINDING_VERSION}}


def _id_key() -> Json:
    return {"type": "string", "description": "The reminder's id, on its routing key's partition."}


def _recipient_key() -> Json:
    return {"type": "string", "description": "`tenant/recipient`, or `tenant/*` for all."}

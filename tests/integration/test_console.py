"""The command line on a real Kafka: topics, commands in their places, answers, no broker."""

import time
from pathlib import Path
from uuid import uuid4

import orjson
import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from schemas.routing import partition_of, routing_key
from streams import kafka as clients
from streams.console import cli
from streams.settings import Settings
from tests.answering import PARTITIONS, answering, read
from tests.kafka import RunningKafka
from tests.waiting import wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture
def where(kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A prefix of its own; the command line finds it in the environment."""
    settings = Settings(bootstrap=kafka.bootstrap, prefix=f"console-{uuid4().hex[:8]}.")
    monkeypatch.setenv("MINUTEWHEEL_BOOTSTRAP", settings.bootstrap)
    monkeypatch.setenv("MINUTEWHEEL_PREFIX", settings.prefix)
    return settings


@pytest.fixture
def topics(where: Settings, capsys: pytest.CaptureFixture[str]) -> Settings:
    """All topics made, by the command itself."""
    assert cli.main(["topics", "create", "--partitions", str(PARTITIONS)]) == 0
    capsys.readouterr()
    return where


def assert_placed(record: Message, reminder_id: str) -> None:
    """The record lies where a Java producer would put its routing key."""
    assert record.partition() == partition_of(reminder_id, PARTITIONS)
    assert record.key() == routing_key(reminder_id)


# ---- topics ----


def test_topics_are_made_once_and_then_as_they_should_be(
    where: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["topics", "check", "-o", "jsonl"]) == 1
    missing = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"difference": f"{where.prefix}commands: is missing"} in missing
    assert cli.main(["topics", "create", "-o", "json"]) == 0
    made = orjson.loads(capsys.readouterr().out)
    assert [each["topic"] for each in made] == where.topics.all()
    assert cli.main(["topics", "create", "-o", "json"]) == 0
    assert orjson.loads(capsys.readouterr().out) == []
    assert cli.main(["topics", "check"]) == 0
    assert capsys.readouterr() == ("all topics are as they should be\n", "")


def test_check_names_each_difference(topics: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    changed = ConfigResource(
        ResourceType.TOPIC,
        topics.topics.due,
        incremental_configs=[
            ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin = AdminClient({"bootstrap.servers": topics.bootstrap})
    admin.incremental_alter_configs([changed])[changed].result()
    wait_until(lambda: cli.main(["topics", "check"]) == 1, 20, "the change is seen")
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == f"{topics.topics.due}: retention.ms is 1000, should be 604800000"


# ---- one command ----


@pytest.mark.parametrize("reminder_id", ["order-17", "parent/child", "Größe", "a" * 256])
def test_a_command_lies_where_its_routing_key_says(
    topics: Settings, capsys: pytest.CaptureFixture[str], reminder_id: str
) -> None:
    words = ["schedule", reminder_id, "--at", "+1h", "--payload", '{"n": 1}', "--no-wait"]
    assert cli.main([*words, "-o", "json"]) == 0
    said = orjson.loads(capsys.readouterr().out)
    record = read(topics, topics.topics.commands, 1)[reminder_id]
    assert_placed(record, reminder_id)
    assert said["status"] == "sent"
    assert said["command"]["partition"] == record.partition()
    assert said["command"]["offset"] == record.offset()
    value = orjson.loads(record.value() or b"")
    assert value["type"] == "schedule"
    assert value["payload"] == {"n": 1}
    assert "reply" not in value


def test_all_options_of_schedule_arrive(
    topics: Settings, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    payload = tmp_path / "payload.json"
    payload.write_text('{"big": 12345678901234567890123}')
    words = (
        "schedule a --local 2026-12-01T09:00 --time-zone Europe/Berlin --version 3 --tenant t "
        "--kind k --group g --to channel:log --header x=1 --header y=2=3 "
        "--not-after 2026-12-02T00:00:00Z --retry-delays 30,300 --max-attempts 5 "
        f"--reason why --actor me --payload @{payload} --no-wait"
    )
    assert cli.main(words.split()) == 0
    record = read(topics, topics.topics.commands, 1)["a"]
    value = record.value() or b""
    assert b"12345678901234567890123" in value
    assert orjson.loads(value) | {"payload": None} == {
        "type": "schedule",
        "id": "a",
        "due_local": "2026-12-01T09:00",
        "time_zone": "Europe/Berlin",
        "version": 3,
        "tenant": "t",
        "kind": "k",
        "group": "g",
        "destination": "channel:log",
        "payload": None,
        "headers": {"x": "1", "y": "2=3"},
        "not_after": "2026-12-02T00:00:00Z",
        "retry": {"delays_s": [30, 300], "max_attempts": 5},
        "reason": "why",
        "actor": "me",
    }


def test_without_a_processor_the_command_is_in_the_log(
    topics: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["cancel", "a", "--timeout", "0.3", "-o", "json"]) == 1
    said = capsys.readouterr()
    assert orjson.loads(said.out)["status"] == "unanswered"
    assert "no processor answered within 0.3 s" in said.err
    assert "IS in the log" in said.err
    assert said.err.count("\n") == 1
    value = read(topics, topics.topics.commands, 1)["a"].value() or b""
    assert orjson.loads(value) == {"type": "cancel", "id": "a", "reply": True}


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        ("schedule a --at +1h", "accepted", 0),
        ("schedule a --at +1h", "conflict", 4),
        ("reschedule a --at +2h", "rescheduled", 0),
        ("trigger a", "already_final", 4),
        ("cancel a", "cancelled", 0),
        ("cancel a", "not_found", 3),
    ],
)
def test_the_reply_to_our_command_and_no_other_is_printed(
    topics: Settings,
    capsys: pytest.CaptureFixture[str],
    words: str,
    status: str,
    code: int,
) -> None:
    with answering(topics, status):
        assert cli.main([*words.split(), "--timeout", "30", "-o", "jsonl"]) == code
    said = capsys.readouterr()
    assert orjson.loads(said.out)["status"] == status
    assert said.err == ""


# ---- files ----


def test_a_file_of_json_lines(
    topics: Settings, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "many.jsonl"
    lines = [b'{"id":"r%d","due_at":1800000000000,"payload":{"n":%d}}' % (n, n) for n in range(500)]
    file.write_bytes(b"\n".join([*lines, b'{"type":"cancel","id":"gone"}']))
    assert cli.main(["schedule", "--file", str(file), "-o", "json"]) == 0
    summary = orjson.loads(capsys.readouterr().out)
    assert (summary["sent"], summary["bad"]) == (501, 0)
    records = read(topics, topics.topics.commands, 501)
    for reminder_id, record in records.items():
        assert_placed(record, reminder_id)
    assert orjson.loads(records["gone"].value() or b"") == {"type": "cancel", "id": "gone"}
    assert orjson.loads(records["r7"].value() or b"")["payload"] == {"n": 7}


def test_a_file_of_csv(
    topics: Settings, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "many.csv"
    file.write_text(
        'type,id,due_at,version,payload\n,a,2027-01-01T00:00:00Z,2,"{""n"": 1}"\ncancel,b,,,\n'
    )
    assert cli.main(["schedule", "--file", str(file), "-o", "json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["types"] == {"schedule": 1, "cancel": 1}
    records = read(topics, topics.topics.commands, 2)
    assert orjson.loads(records["a"].value() or b"") == {
        "type": "schedule",
        "id": "a",
        "due_at": "2027-01-01T00:00:00Z",
        "version": 2,
        "payload": {"n": 1},
    }
    for reminder_id, record in records.items():
        assert_placed(record, reminder_id)


# ---- nobody there ----


def test_no_broker_is_one_line_with_the_address_and_code_5(
    capfd: pytest.CaptureFixture[str],
) -> None:
    started_s = time.monotonic()
    assert cli.main(["topics", "check", "--bootstrap", "127.0.0.1:1"]) == 5
    assert time.monotonic() - started_s < 20
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.startswith("minutewheel: no broker answered at 127.0.0.1:1: ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("words", ["schedule a --at +1h", "get a", "due"])
def test_no_topics(where: Settings, capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert cli.main(words.split()) == 1
    said = capsys.readouterr()
    assert f"no topic {where.prefix}" in said.err
    assert "minutewheel topics create" in said.err


def test_the_last_owner_that_reported_is_asked(
    topics: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["get", "a"]) == 5
    assert "has ever reported" in capsys.readouterr().err
    producer = clients.plain_producer(topics, "test")
    for owner in ("127.0.0.1:2", "127.0.0.1:1"):
        for number in range(PARTITIONS):
            body = orjson.dumps({"partition": number, "owner": owner})
            producer.produce(topics.topics.pressure, body, key=str(number), partition=number)
    producer.flush(10)
    for words in ("get a", "due"):
        assert cli.main(words.split()) == 5
        assert "no processor answers at 127.0.0.1:1: " in capsys.readouterr().err

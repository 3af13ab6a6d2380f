"""Every error becomes one line on standard error and the code of the contract."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from deploy.broker.errors import NoClusterError, StartFailedError
from schemas.commands import Cancel, Schedule
from schemas.errors import Refused
from streams import errors
from streams.console import asking, cli, failures
from streams.settings import Settings


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.StreamsError("x"), 1),
        (failures.Usage("x"), 2),
        (errors.BadSetting("x"), 2),
        (Refused("invalid", "x", "due_at"), 2),
        (errors.NotFound("x"), 3),
        (errors.TooLate("x"), 4),
        (errors.BrokerUnreachable("x"), 5),
        (errors.NoNode("x"), 5),
        (failures.Unanswered("x"), 1),
        (failures.LinesRefused("x"), 1),
    ],
)
def test_each_error_has_its_code_and_its_line(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failures.report(error) == code
    assert capsys.readouterr() == ("", "minutewheel: x\n")


def test_a_local_kafka_s_error_is_one_line_and_a_quoted_log_stays(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert failures.report(NoClusterError("Nothing here.")) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert failures.report(StartFailedError("\n".join(f"line {n}" for n in range(9)))) == 1
    assert "line 0\nline 1\n" in capsys.readouterr().err


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schedule", "--file", "/no/such.jsonl"]) == 1
    assert capsys.readouterr().err == "minutewheel: /no/such.jsonl: No such file or directory\n"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (KafkaError._TIMED_OUT, 5),
        (KafkaError._TRANSPORT, 5),
        (KafkaError._ALL_BROKERS_DOWN, 5),
        (KafkaError._INVALID_ARG, 2),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, 1),
    ],
)
def test_a_kafka_client_s_error_is_said_in_our_terms(kind: int, code: int) -> None:
    error = KafkaException(KafkaError(kind))
    assert failures.is_from_kafka(error)
    assert not failures.is_from_kafka(ValueError())
    said = failures.with_address(error, Settings(bootstrap="127.0.0.1:1"))
    assert said.exit_code == code
    assert code == 2 or "at 127.0.0.1:1" in str(said)


def test_an_error_nobody_foresaw_shows_where_it_came_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("x")

    monkeypatch.setattr("streams.console.bulk.send_file", fail)
    assert cli.main(["schedule", "--file", "x.jsonl"]) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.splitlines()[-1].startswith("minutewheel: an error nobody foresaw")


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["schedule"],
        ["schedule", "a"],
        ["schedule", "a", "--at", "yesterday"],
        ["schedule", "a", "--at", "12"],
        ["schedule", "a", "--at", "+1h", "--local", "2026-12-01T09:00"],
        ["schedule", "a", "--local", "2026-12-01T09:00"],
        ["schedule", "a", "--local", "2026-12-01T09:00", "--time-zone", "Mars/Olympus"],
        ["schedule", "a", "--at", "+1h", "--payload", "hello"],
        ["schedule", "a", "--at", "+1h", "--payload", "1", "--payload-ref", "s3://x"],
        ["schedule", "a", "--at", "+1h", "--header", "novalue"],
        ["schedule", "a", "--at", "+1h", "--retry-delays", "soon"],
        ["schedule", "a", "--at", "+1h", "--to", "pigeon"],
        ["schedule", "a", "--at", "+1h", "--version", "-1"],
        ["schedule", "a", "--at", "+1h", "--nonsense"],
        ["schedule", "a", "--file", "x.jsonl"],
        ["schedule", "--file", "x.jsonl", "--tenant", "t"],
        ["schedule", "--file", "x.txt"],
        ["get"],
        ["get", "a", "-o", "xml"],
        ["due", "--by", "week"],
        ["due", "--from", "+soon"],
        ["broker", "start", "--nodes", "2"],
        ["topics", "check", "--config", "/no/such.toml"],
    ],
)
def test_usage_errors_are_one_line_and_code_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("minutewheel: ")
    assert said.err.count("\n") == 1


SCHEDULE = Schedule(id="a", due_at=0)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("accepted", 0),
        ("duplicate", 0),
        ("replaced", 0),
        ("rescheduled", 0),
        ("cancel_requested", 0),
        ("not_found", 3),
        ("already_final", 4),
        ("stale_version", 4),
        ("conflict", 4),
        ("cancelled", 4),
        ("rejected", 1),
    ],
)
def test_a_reply_s_code(status: str, code: int) -> None:
    assert asking.exit_code(SCHEDULE, status) == code


def test_cancelled_is_what_a_cancel_wants() -> None:
    assert asking.exit_code(Cancel(id="a"), "cancelled") == 0

"""Settings: which source counts, what each type takes, and what is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from streams.errors import BadSetting
from streams.settings import Settings, load

SECRET = "whsec_" + "Zm9yLWEtdGVzdA=="
NAMES = [setting.name for setting in fields(Settings)]


def read(tmp_path: Path, text: str, given: Mapping[str, Any] | None = None) -> Settings:
    """The settings of a file holding `text`, with an environment that says nothing."""
    file = tmp_path / "settings.toml"
    file.write_text(text, encoding="utf-8")
    return load(given or {}, file=file, environment={})


def from_environment(**variables: str) -> Settings:
    """The settings of an environment that holds these and nothing else."""
    said = {f"MINUTEWHEEL_{name.upper()}": text for name, text in variables.items()}
    return load({}, environment=said)


def test_the_command_line_over_the_environment_over_the_file_over_the_defaults(
    tmp_path: Path,
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('prefix = "file."\nbootstrap = "file:1"\npartitions = 7\n')
    environment = {"MINUTEWHEEL_PREFIX": "environment.", "MINUTEWHEEL_BOOTSTRAP": "environment:1"}
    settings = load({"prefix": "line.", "name": None}, file=file, environment=environment)
    assert settings.prefix == "line."
    assert settings.bootstrap == "environment:1"
    assert settings.partitions == 7
    assert settings.replication == Settings().replication
    # None is what an option that was not given says.
    assert settings.name == Settings().name


def test_the_process_s_own_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINUTEWHEEL_CLAIMS_MAX", "17")
    assert load({}).claims_max == 17


def test_variables_of_other_programs_and_of_our_other_parts_are_passed_over() -> None:
    environment = {
        "MINUTEWHEEL_JAVA": "/j",
        "PREFIX": "no.",
        "MINUTEWHEEL_": "x",
        "minutewheel": "",
    }
    assert load({}, environment=environment) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("bootstrap", "a:1,b:2", "a:1,b:2"),
        ("partitions", "12", 12),
        ("deliver_timeout_s", "2.5", 2.5),
        ("deliver_timeout_s", "3", 3.0),
        ("data_dir", "/var/lib/minutewheel", Path("/var/lib/minutewheel")),
        ("retry_delays_s", "5, 60,600", (5, 60, 600)),
        ("egress_allow", "10.0.0.0/8, fd00::/8", ("10.0.0.0/8", "fd00::/8")),
        ("egress_allow", "", ()),
        ("kafka", "linger.ms=9, sasl.password=a=b", {"linger.ms": "9", "sasl.password": "a=b"}),
        ("kafka", "", {}),
        *(("static_membership", text, True) for text in ("true", "True", "1", "yes")),
        *(("static_membership", text, False) for text in ("false", "0", "no", "NO")),
    ],
)
def test_a_text_becomes_the_setting_s_own_type(name: str, text: str, value: object) -> None:
    found = getattr(from_environment(**{name: text}), name)
    assert found == value
    assert type(found) is type(value)


def test_a_path_may_begin_at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert from_environment(data_dir="~/data").data_dir == tmp_path / "data"


def test_a_file_has_types_of_its_own(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        """
        partitions = 8
        deliver_timeout_s = 5
        static_membership = true
        retry_delays_s = [1, 2]
        egress_allow = ["127.0.0.0/8"]
        data_dir = "/data"
        [kafka]
        "sasl.mechanism" = "PLAIN"
        sasl.username = "me"
        socket.keepalive.enable = true
        retries = 3
        """,
    )
    assert (settings.partitions, settings.deliver_timeout_s) == (8, 5.0)
    assert settings.static_membership
    assert settings.retry_delays_s == (1, 2)
    assert settings.egress_allow == ("127.0.0.0/8",)
    assert settings.data_dir == Path("/data")
    assert settings.kafka == {
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "socket.keepalive.enable": "true",
        "retries": "3",
    }


def test_an_unknown_setting_of_a_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"settings\.toml: partitons: there is no such setting"):
        read(tmp_path, "partitons = 8\n")


def test_an_unknown_setting_of_the_command_line_is_refused_by_name() -> None:
    with pytest.raises(BadSetting, match="shards: there is no such setting"):
        load({"shards": 3}, environment={})


@pytest.mark.parametrize(
    "text", ["partitions = ", "= 3", "[kafka", "partitions = 1\npartitions = 2"]
)
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadSetting, match=r"--config .*settings\.toml: "):
        read(tmp_path, text)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_bytes(b'name = "\xff\xfe"')
    with pytest.raises(BadSetting, match=r"--config .*settings\.toml: "):
        load({}, file=file, environment={})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"--config .*nowhere\.toml: No such file"):
        load({}, file=tmp_path / "nowhere.toml", environment={})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("partitions", "four", "a whole number"),
        ("partitions", "4.0", "a whole number"),
        ("deliver_timeout_s", "soon", "a number"),
        ("deliver_timeout_s", "nan", "a number"),
        ("deliver_timeout_s", "inf", "a number"),
        ("static_membership", "perhaps", "true or false"),
        ("retry_delays_s", "30,later", "a list of whole numbers"),
        ("kafka", "acks", "name=value pairs"),
    ],
)
def test_a_text_that_is_none_of_the_type_names_the_setting(name: str, text: str, said: str) -> None:
    with pytest.raises(BadSetting, match=rf"^{name}: .* is not {said}"):
        from_environment(**{name: text})


@pytest.mark.parametrize(
    "line",
    [
        "partitions = 4.7",
        "partitions = true",
        "deliver_timeout_s = true",
        "static_membership = 1",
        "retry_delays_s = 30",
        "retry_delays_s = [1.5]",
        "egress_allow = [1]",
        "data_dir = 5",
        "name = 5",
        'bootstrap = ["a:1", "b:2"]',
        "kafka = 5",
        "kafka.acks = [1]",
    ],
)
def test_a_value_of_another_type_in_a_file_names_the_setting(tmp_path: Path, line: str) -> None:
    name = line.partition(" ")[0].partition(".")[0]
    with pytest.raises(BadSetting, match=rf"^{name}: "):
        read(tmp_path, line)


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize(
    "name", [name for name in NAMES if type(getattr(Settings(), name)) in {int, float}]
)
def test_every_figure_must_be_above_zero(name: str, value: int) -> None:
    assert getattr(load({name: 1}, environment={}), name) == 1
    with pytest.raises(BadSetting, match=rf"^{name}: must be above 0, not {value}"):
        load({name: value}, environment={})


@pytest.mark.parametrize("text", ["", "-1", "30,-5"])
def test_delays_are_at_least_one_and_none_is_negative(text: str) -> None:
    with pytest.raises(BadSetting, match=r"^retry_delays_s: at least one, and none below 0"):
        from_environment(retry_delays_s=text)


def test_a_delay_of_nothing_is_a_delay() -> None:
    assert from_environment(retry_delays_s="0").retry_delays_s == (0,)


@pytest.mark.parametrize("prefix", ["a b.", "a/", "ä.", "a" * 201])
def test_a_prefix_that_no_topic_may_have_is_refused(prefix: str) -> None:
    with pytest.raises(BadSetting, match=r"^prefix: "):
        from_environment(prefix=prefix)


@pytest.mark.parametrize("prefix", ["", "a-B_9.", "a" * 200])
def test_a_prefix_that_topics_may_have(prefix: str) -> None:
    assert from_environment(prefix=prefix).topics.commands == f"{prefix}commands"


def test_the_group_protocol_is_one_of_two() -> None:
    assert from_environment(group_protocol="consumer").group_protocol == "consumer"
    with pytest.raises(BadSetting, match=r"^group_protocol: 'classic' or 'consumer'"):
        from_environment(group_protocol="eager")


ADDRESSES = ["http", "http_advertised", "deliver_http"]


@pytest.mark.parametrize("name", ADDRESSES)
@pytest.mark.parametrize("address", ["127.0.0.1:6066", "[::1]:80", "node-1.example:65535"])
def test_addresses(name: str, address: str) -> None:
    assert getattr(from_environment(**{name: address, "http_token": "t"}), name) == address


@pytest.mark.parametrize("name", ADDRESSES)
@pytest.mark.parametrize("address", ["6066", ":6066", "host:", "host:http", "host:65536", "host:²"])
def test_what_is_no_address_is_refused(name: str, address: str) -> None:
    with pytest.raises(BadSetting, match=rf"^{name}: HOST:PORT, not "):
        from_environment(**{name: address})


def test_only_http_has_to_be_somewhere() -> None:
    settings = from_environment(http_advertised="", deliver_http="")
    assert (settings.http_advertised, settings.deliver_http) == ("", "")
    with pytest.raises(BadSetting, match=r"^http: "):
        from_environment(http="")


def test_secrets_are_not_in_the_representation() -> None:
    settings = from_environment(webhook_secret=SECRET, kafka="sasl.password=hunter2")
    assert settings.webhook_secret == SECRET
    assert settings.kafka == {"sasl.password": "hunter2"}
    assert SECRET not in repr(settings)
    assert "hunter2" not in repr(settings)


def test_a_refused_secret_is_not_said(tmp_path: Path) -> None:
    # A comma in a password: the rest of it is no pair.
    with pytest.raises(BadSetting) as refused:
        from_environment(kafka="sasl.password=hunter2,more")
    assert "hunter2" not in str(refused.value)
    with pytest.raises(BadSetting) as refused:
        read(tmp_path, 'webhook_secret = ["hunter2"]')
    assert "hunter2" not in str(refused.value)


def test_names_under_the_prefix() -> None:
    settings = Settings(prefix="p.")
    assert settings.topics.all() == [
        f"p.{name}"
        for name in (
            "commands",
            "state",
            "due",
            "outcomes",
            "replies",
            "rejected",
            "dead",
            "suppressions",
            "pressure",
        )
    ]
    assert (settings.processor_group, settings.delivery_group) == ("p.processor", "p.delivery")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "localhost:1"])
def test_loopback_needs_no_token(address: str) -> None:
    assert load({"http": address}, environment={}).http == address


@pytest.mark.parametrize("address", ["0.0.0.0:6066", "[::]:6066", "10.0.0.1:6066", "host:6066"])
def test_elsewhere_than_on_loopback_a_token_is_needed(address: str) -> None:
    with pytest.raises(BadSetting, match="http_token"):
        load({"http": address}, environment={})
    assert load({"http": address, "http_token": "t"}, environment={}).http == address


def test_the_address_is_given_once_for_librdkafka_and_faust_alike() -> None:
    for name in ("bootstrap.servers", "metadata.broker.list"):
        with pytest.raises(BadSetting, match=f"{name}: give it as bootstrap"):
            load({"kafka": {name: "kafka-2:9092"}}, environment={})


def test_what_the_promises_rest_on_cannot_be_set() -> None:
    with pytest.raises(BadSetting, match=r"isolation\.level"):
        load({"kafka": {"isolation.level": "read_uncommitted"}}, environment={})
    assert load({"kafka": {"linger.ms": "50"}}, environment={}).kafka == {"linger.ms": "50"}

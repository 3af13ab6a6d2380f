"""One processor on a real Kafka: claims, leases, retries, revocations and replies."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka.cimpl import NewTopic
from prometheus_client import REGISTRY

from schemas import instants
from schemas.events import DueEvent, ReplyStatus
from schemas.reminder import State
from streams import kafka as clients
from tests import zeros
from tests.acceptance import upstream
from tests.kafka import RunningKafka
from tests.processor_lab import Lab, SetClock, laboratory

pytestmark = pytest.mark.kafka

CLAIMS = 10
DAY_MS = 86_400_000


def _bodies(lab: Lab, topic: str) -> list[dict[str, Any]]:
    return [orjson.loads(record.value or b"") for record in zeros.read_topic(lab.settings, topic)]


def _state(lab: Lab, reminder_id: str) -> State | None:
    standing = lab.standing(reminder_id)
    return None if standing is None else standing.state


def _ms(text: str) -> int:
    return instants.milliseconds(instants.parse(text, "instant"))


def _fired(lab: Lab, reminder_id: str, attempt: int = 1) -> DueEvent:
    """Turn until this attempt has left; returns it."""

    def left() -> bool:
        standing = lab.standing(reminder_id)
        return standing is not None and standing.attempt == attempt

    lab.turn_until(left, f"attempt {attempt} of {reminder_id}")
    events = [event for event in lab.due() if event.id == reminder_id]
    # An instant that was moved begins anew with attempt 1: the last one is meant.
    return next(event for event in reversed(events) if event.attempt == attempt)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_scheduled_fired_and_answered(kafka: RunningKafka, tmp_path: Path, protocol: str) -> None:
    with laboratory(kafka.bootstrap, tmp_path, group_protocol=protocol) as lab:
        lab.active()
        due_ms = upstream.now_ms() + 1_000
        names = [f"f-{n}" for n in range(40)]
        lab.send(*(upstream.schedule(name, due_ms, "due") for name in names))
        lab.turn_until(lambda: lab.claims() == len(names), "all have left")
        events = lab.due()
        assert sorted(event.id for event in events) == sorted(names)
        for event in events:
            lab.answer(event, "delivered")
        lab.turn_until(lambda: lab.claims() == 0, "all answers taken in")
        assert {_state(lab, name) for name in names} == {State.DELIVERED}
        # What it has done is there for the next one, which begins behind it.
        lab.close()
        lab.active()
        assert {_state(lab, name) for name in names} == {State.DELIVERED}
        history = lab.assert_all_zero("a")
        assert len(history.due) == len(names)


def test_no_more_leave_than_may_be_unanswered(kafka: RunningKafka, tmp_path: Path) -> None:
    """The rest stays in the wheel, where it can be cancelled; topics of their own do not wait."""
    with laboratory(kafka.bootstrap, tmp_path, partitions=1, claims_max=CLAIMS) as lab:
        target = f"{lab.settings.prefix}target"
        admin = clients.Cluster(lab.settings).admin
        admin.create_topics([NewTopic(target, 1, 1)])[target].result()
        lab.active()
        start_ms = upstream.now_ms() + 1_000
        due_ms = {f"c-{n}": start_ms + 10 * n for n in range(50)}
        commands = [upstream.schedule(name, at, "due") for name, at in due_ms.items()]
        commands += [upstream.schedule(f"t-{n}", start_ms, f"topic:{target}") for n in range(20)]
        random.Random(3).shuffle(commands)
        lab.send(*commands)
        throttled = _throttled()
        lab.turn_until(lambda: _throttled() >= throttled + 2, "held back for two seconds")
        assert len(lab.due()) == lab.claims() == CLAIMS
        assert len(zeros.read_topic(lab.settings, target)) == 20
        lab.send({"type": "cancel", "id": "c-49"})
        del due_ms["c-49"]
        for wave in range(CLAIMS, len(due_ms), CLAIMS):
            left = lab.due()
            assert len(left) == wave
            for event in left[-CLAIMS:]:
                lab.answer(event, "delivered")
            wanted = min(wave + CLAIMS, len(due_ms))
            lab.turn_until(lambda n=wanted: len(lab.due()) == n, f"{wanted} in all")
        for event in lab.due()[wave:]:
            lab.answer(event, "delivered")
        lab.turn_until(lambda: lab.claims() == 0, "all answers taken in")
        # One partition: the log's order is the order in which they left.
        assert [event.id for event in lab.due()] == sorted(due_ms, key=due_ms.__getitem__)
        before = _throttled()
        lab.turn_until(_another_second(), "another look at the gauges")
        assert _throttled() == before, "nothing is held back any more"
        lab.assert_all_zero("a", targets=(target,))


def _throttled() -> float:
    return REGISTRY.get_sample_value("minutewheel_throttled_total", {"by": "claims"}) or 0.0


def _another_second() -> Any:
    """Whether the heartbeat has been set, and with it the other gauges."""
    name = "minutewheel_heartbeat_timestamp_seconds"
    before = REGISTRY.get_sample_value(name)
    return lambda: REGISTRY.get_sample_value(name) != before


def test_an_unanswered_due_event_is_asked_again(kafka: RunningKafka, tmp_path: Path) -> None:
    with laboratory(kafka.bootstrap, tmp_path, lease_s=2) as lab:
        lab.active()
        lab.send(upstream.schedule("silent", 0, "due"))
        first = _fired(lab, "silent")
        again = _fired(lab, "silent", attempt=2)
        assert again.fire_id == first.fire_id
        waited_ms = _ms(again.fired_at) - _ms(first.fired_at)
        assert 2_000 <= waited_ms < 4_000
        lab.answer(first, "delivered")
        lab.turn_until(lambda: _state(lab, "silent") is State.DELIVERED, "the late answer counts")
        # Of the second attempt comes the same answer: the first one has counted.
        suppressed = _suppressed("outcome")
        lab.answer(again, "failed")
        lab.turn_until(lambda: _suppressed("outcome") == suppressed + 1, "the other one is counted")
        assert _state(lab, "silent") is State.DELIVERED
        history = lab.assert_all_zero("a")
        assert len(history.due) == 2


def _suppressed(where: str) -> float:
    name = "minutewheel_duplicates_suppressed_total"
    return REGISTRY.get_sample_value(name, {"where": where}) or 0.0


def test_a_failed_attempt_is_made_again_and_then_buried(
    kafka: RunningKafka, tmp_path: Path
) -> None:
    with laboratory(kafka.bootstrap, tmp_path) as lab:
        lab.active()
        due_ms = upstream.now_ms() + 500
        asked = upstream.schedule(
            "bill",
            due_ms,
            "due",
            version=3,
            tenant="acme",
            kind="invoice",
            group="order-7",
            payload={"amount": 12.50},
            headers={"lang": "de"},
            retry={"delays_s": [1], "max_attempts": 2},
        )
        lab.send(asked)
        first = _fired(lab, "bill")
        lab.answer(first, "failed", detail="HTTP 503")
        second = _fired(lab, "bill", attempt=2)
        assert second.fire_id == first.fire_id
        standing = lab.standing("bill")
        assert standing is not None
        waited_ms = _ms(second.fired_at) - standing.attempts[0].at_ms
        assert 1_000 <= waited_ms < 3_000
        lab.answer(second, "failed", detail="HTTP 502")
        lab.turn_until(lambda: _state(lab, "bill") is State.DEAD, "given up")
        (letter,) = zeros.read_topic(lab.settings, lab.settings.topics.dead)
        assert letter.key == b"bill"
        assert letter.headers == {
            "fire-id": first.fire_id.encode(),
            "error.class": b"attempts_exhausted",
            "attempts": b"2",
        }
        body = orjson.loads(letter.value or b"")
        assert [(one["attempt"], one["status"], one["detail"]) for one in body["attempts"]] == [
            (1, "failed", "HTTP 503"),
            (2, "failed", "HTTP 502"),
        ]
        assert _ms(body.pop("at")) >= _ms(body.pop("attempts")[1]["at"])
        assert body == {
            "fire_id": first.fire_id,
            "id": "bill",
            "version": 3,
            "tenant": "acme",
            "kind": "invoice",
            "group": "order-7",
            "destination": "due",
            "due_at": instants.text(due_ms),
            "reason": "attempts_exhausted",
            "headers": {"lang": "de"},
            "payload": {"amount": 12.50},
        }
        lab.assert_all_zero("a")


def test_what_has_left_is_taken_back(kafka: RunningKafka, tmp_path: Path) -> None:
    """Moved, or cancelled, while somebody may be about to deliver it."""
    with laboratory(kafka.bootstrap, tmp_path) as lab:
        lab.active()
        far_ms = upstream.now_ms() + DAY_MS
        lab.send(
            upstream.schedule("moved", 0, "due"),
            upstream.schedule("cancelled", 0, "due"),
            upstream.schedule("pulled", far_ms, "due"),
            {"type": "trigger", "id": "pulled"},
        )
        moved, cancelled = _fired(lab, "moved"), _fired(lab, "cancelled")
        pulled = _fired(lab, "pulled")
        assert _ms(pulled.due_at) == far_ms
        moved_to_ms = upstream.now_ms() + 1_500
        lab.send(
            {"type": "reschedule", "id": "moved", "due_at": moved_to_ms},
            {"type": "cancel", "id": "cancelled", "reason": "paid", "reply": True},
        )
        lab.turn_until(lambda: _state(lab, "moved") is State.PENDING, "moved")
        anew = _fired(lab, "moved")
        assert anew.fire_id != moved.fire_id
        assert (anew.version, _ms(anew.due_at)) == (1, moved_to_ms)
        taken_back = {
            (record.key, record.value)
            for record in zeros.read_topic(lab.settings, lab.settings.topics.due)
            if (record.value or b"").startswith(b'{"revoke"')
        }
        assert taken_back == {
            (b"moved", orjson.dumps({"revoke": moved.fire_id, "reason": "replaced"})),
            (b"cancelled", orjson.dumps({"revoke": cancelled.fire_id, "reason": "paid"})),
        }
        (reply,) = _bodies(lab, lab.settings.topics.replies)
        assert reply["status"] == "cancel_requested"
        # The delivery of the old instant answers late: that says nothing about the new one.
        lab.answer(moved, "delivered")
        lab.answer(cancelled, "cancelled")
        lab.answer(anew, "delivered")
        lab.answer(pulled, "delivered")
        lab.turn_until(lambda: lab.claims() == 0, "all answers taken in")
        assert _state(lab, "cancelled") is State.CANCELLED
        assert _state(lab, "moved") is _state(lab, "pulled") is State.DELIVERED
        lab.assert_all_zero("a")


def test_every_reply_says_what_became_of_its_command(kafka: RunningKafka, tmp_path: Path) -> None:
    with laboratory(kafka.bootstrap, tmp_path, partitions=1) as lab:
        lab.active()
        far_ms = upstream.now_ms() + DAY_MS

        def schedule(version: int, due_ms: int = far_ms) -> dict[str, Any]:
            return upstream.schedule("a", due_ms, "due", version=version, reply=True)

        moved = {"type": "reschedule", "id": "a", "due_at": far_ms + 5, "reply": True}
        cancelled = {"type": "cancel", "id": "a", "reply": True}
        asked: list[tuple[dict[str, Any], ReplyStatus, int | None, int | None]] = [
            (schedule(1), ReplyStatus.ACCEPTED, 1, far_ms),
            (schedule(1), ReplyStatus.DUPLICATE, 1, far_ms),
            (schedule(1, far_ms + 1), ReplyStatus.CONFLICT, 1, far_ms),
            (schedule(2), ReplyStatus.REPLACED, 2, far_ms),
            (schedule(1), ReplyStatus.STALE_VERSION, 2, far_ms),
            (moved, ReplyStatus.RESCHEDULED, 3, far_ms + 5),
            (cancelled, ReplyStatus.CANCELLED, 3, far_ms + 5),
            (cancelled, ReplyStatus.ALREADY_FINAL, 3, far_ms + 5),
            (schedule(3), ReplyStatus.CONFLICT, 3, far_ms + 5),
            (cancelled | {"id": "nobody"}, ReplyStatus.NOT_FOUND, None, None),
            (schedule(4, 1_700_000_000), ReplyStatus.REJECTED, 3, far_ms + 5),
            (schedule(4, 0), ReplyStatus.REPLACED, 4, 0),
        ]
        lab.send(*(command for command, _, _, _ in asked))
        _fired(lab, "a")
        lab.send(cancelled)
        asked.append((cancelled, ReplyStatus.CANCEL_REQUESTED, 4, 0))
        topic = lab.settings.topics.replies
        lab.turn_until(lambda: len(_bodies(lab, topic)) == len(asked), "all replies")
        replies = _bodies(lab, topic)
        assert {reply["status"] for reply in replies} == set(ReplyStatus)
        for offset, ((command, status, version, due_ms), reply) in enumerate(
            zip(asked, replies, strict=True)
        ):
            assert (reply["id"], reply["status"]) == (command["id"], status)
            assert reply["version"] == version, status
            assert reply.get("due_at") == (None if due_ms is None else instants.text(due_ms))
            commands = lab.settings.topics.commands
            assert reply["command"] == {"topic": commands, "partition": 0, "offset": offset}
            assert abs(_ms(reply["at"]) - upstream.now_ms()) < 60_000
        lab.assert_all_zero("a")


def test_a_clock_that_steps_back_fires_nothing_twice_and_loses_nothing(
    kafka: RunningKafka, tmp_path: Path
) -> None:
    """What falls due before the wheel's cursor takes the cursor back with it, over a restart."""
    clock = SetClock()
    # Longer than the step, or what has left is asked again when the clock is set right.
    with laboratory(kafka.bootstrap, tmp_path, lease_s=86_400) as lab:
        lab.active(clock=clock)
        lab.send(*(upstream.schedule(f"before-{n}", 0, "due") for n in range(20)))
        lab.turn_until(lambda: lab.claims() == 20, "the first have left")
        clock.wall_ahead_ms = -2 * 3_600_000
        soon_ms = clock.now_ms() + 1_000
        later_ms = clock.now_ms() + 600_000
        lab.send(
            *(upstream.schedule(f"soon-{n}", soon_ms, "due") for n in range(20)),
            *(upstream.schedule(f"later-{n}", later_ms, "due") for n in range(20)),
        )
        lab.turn_until(lambda: lab.claims() == 40, "what is due by the clock that was set back")
        lab.close()
        lab.active(clock=clock)
        assert (lab.pending(), lab.claims()) == (20, 40)
        clock.wall_ahead_ms = 0
        lab.turn_until(lambda: lab.claims() == 60, "the rest, once it is set right")
        history = lab.assert_all_zero("a")
        assert len(history.due) == 60


def test_a_reply_names_the_cloud_event_it_answers(kafka: RunningKafka, tmp_path: Path) -> None:
    data = {"id": "a", "due_at": upstream.now_ms() + 60_000, "reply": True}
    kind = "reminder.schedule.v1"
    event = {"specversion": "1.0", "id": "e-1", "source": "shop", "type": kind, "data": data}
    binary = {"ce_specversion": "1.0", "ce_id": "e-2", "ce_source": "shop", "ce_type": kind}
    with laboratory(kafka.bootstrap, tmp_path) as lab:
        lab.active()
        lab.send((b"a", orjson.dumps(event)), (b"a", orjson.dumps(data), binary))
        replies = _records(lab, lab.settings.topics.replies, 2)
    said = [orjson.loads(reply.value or b"") for reply in replies]
    assert [(each["command"]["ce_id"], each["status"]) for each in said] == [
        ("e-1", "accepted"),
        ("e-2", "duplicate"),
    ]


def test_a_refused_cloud_event_can_be_sent_again_as_it_was(
    kafka: RunningKafka, tmp_path: Path
) -> None:
    with laboratory(kafka.bootstrap, tmp_path) as lab:
        lab.active()
        binary = {"ce_id": "e-1", "ce_type": "reminder.schedule.v1"}
        lab.send((b"a", b'{"id":"a","dueat":1}', binary))
        (refused,) = _records(lab, lab.settings.topics.rejected, 1)
    assert refused.value == b'{"id":"a","dueat":1}'
    assert refused.headers["ce_id"] == b"e-1"
    assert refused.headers["ce_type"] == b"reminder.schedule.v1"
    assert refused.headers["error.field"] == b"dueat"


def _records(lab: Lab, topic: str, count: int) -> list[zeros.Record]:
    """The records of a topic, once there are so many."""
    found: list[zeros.Record] = []

    def written() -> bool:
        found[:] = zeros.read_topic(lab.settings, topic)
        return len(found) >= count

    lab.turn_until(written, f"{count} records in {topic}")
    return found

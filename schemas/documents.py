"""JSON Schema and AsyncAPI files, made from the types so that they cannot say anything else.

`python -m schemas.documents` writes them, `--check` says which are not current and exits 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

from schemas import described
from schemas.asyncapi import asyncapi
from schemas.commands import COMMAND_TYPES
from schemas.events import Outcome

FOLDER: Final = Path(__file__).parent
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
JsonSchema = dict[str, Any]

BODIES: Final[dict[str, type[Struct]]] = {
    "due-event": described.DueEvent,
    "revocation": described.Revocation,
    "outcome": Outcome,
    "reply": described.Reply,
    "dead-letter": described.DeadLetter,
    "suppression": described.Suppression,
    "cloud-event": described.CloudEvent,
}
"""Every body that is no command, under the name of its file."""

FIELDS: Final = {
    "type": "What is to be done.",
    "id": "The idempotency key of the obligation. `parent/child` routes with `parent`.",
    "due_at": "When to remind. Give this, or due_local with time_zone. The past fires at once.",
    "due_local": "When to remind, as a wall clock in `time_zone` shows it. "
    "In a gap the first valid instant after it, in a fold the first of the two.",
    "time_zone": "The IANA zone of `due_local`.",
    "version": "A higher one replaces, an equal one with equal content is a duplicate, "
    "with other content a conflict; a lower one is stale.",
    "tenant": "Whose reminder it is.",
    "kind": "What sort of reminder it is.",
    "group": "A business key, such as a shipment, to find and cancel reminders together.",
    "destination": "`due`, `topic:<name>`, `http(s)://…`, `mailto:…` or `channel:<name>`.",
    "payload": "Any JSON of at most 65,536 bytes, nested at most 256 deep. Passed on untouched.",
    "payload_ref": "A reference to the payload instead of it. Nobody here fetches it.",
    "headers": "Passed on. Names and contents together have at most 8,192 bytes.",
    "not_after": "Later than this it is stale and never sent.",
    "retry": "How failed attempts are repeated, instead of the configured way.",
    "reply": "Whether to answer on the topic `replies`.",
    "reason": "Why, kept for the audit.",
    "actor": "Who, kept for the audit.",
}
"""What each field of a command means, whichever command has it."""


def schema_of(form: type[Struct]) -> tuple[JsonSchema, dict[str, JsonSchema]]:
    """The JSON Schema of a type, and of the types it names, without what makes it a document."""
    _, components = msgspec.json.schema_components([form], ref_template="#/$defs/{name}")
    body = components.pop(form.__name__)
    return body, components


def command_schema(name: str) -> tuple[JsonSchema, dict[str, JsonSchema]]:
    """The schema of one command in its plain form, with the rules between its fields."""
    form: type[Struct] = COMMAND_TYPES[name]
    if "payload" in form.__struct_fields__:
        # The library has no schema for raw JSON: to a reader of the document it is any JSON.
        form = msgspec.defstruct(
            form.__name__,
            [("payload", Any, UNSET)],
            bases=(form,),
            namespace={"__doc__": form.__doc__},
        )
    body, components = schema_of(form)
    properties = body["properties"]
    for field in ("type", *COMMAND_TYPES[name].__struct_fields__):
        # Taken out and put back, so that they stand in the order of the type.
        properties[field] = {"description": FIELDS[field]} | properties.pop(field)
    rules: list[JsonSchema] = []
    if "due_at" in properties:
        rules.append(_one_due_time())
    if "payload" in properties:
        properties["payload"].pop("default", None)
        referred = {"payload_ref": {"type": "string"}}
        both = {"required": ["payload", "payload_ref"], "properties": referred}
        rules.append({"not": both})
    if rules:
        body["allOf"] = rules
    return body, components


def _one_due_time() -> JsonSchema:
    """Either `due_at`, or `due_local` with `time_zone`. A null counts as absent."""
    absent = {"type": "null"}
    given = {"not": absent}
    return {
        "oneOf": [
            {
                "required": ["due_at"],
                "properties": {"due_at": given, "due_local": absent, "time_zone": absent},
            },
            {
                "required": ["due_local", "time_zone"],
                "properties": {"due_local": given, "time_zone": given, "due_at": absent},
            },
        ]
    }


def _document(urn: str, body: JsonSchema, components: dict[str, JsonSchema]) -> JsonSchema:
    document: JsonSchema = {"$schema": DIALECT, "$id": f"urn:minutewheel:{urn}:v1"} | body
    if components:
        document["$defs"] = components
    return document


def _any_command() -> JsonSchema:
    """One schema for every value of the commands topic in its plain form."""
    forms: dict[str, JsonSchema] = {}
    shared: dict[str, JsonSchema] = {}
    for name in COMMAND_TYPES:
        forms[name], components = command_schema(name)
        shared |= components
    body = {
        "title": "Command",
        "description": "One command in its plain form; `type` says which.",
        "type": "object",
        "required": ["type"],
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in forms],
    }
    return _document("command", body, forms | shared)


def documents() -> dict[str, JsonSchema]:
    """Every document under its file's name relative to this folder."""
    made = {"json/command.v1.json": _any_command()}
    for name in COMMAND_TYPES:
        made[f"json/{name}.v1.json"] = _document(f"command:{name}", *command_schema(name))
    for name, form in BODIES.items():
        made[f"json/{name}.v1.json"] = _document(name, *schema_of(form))
    headers, _ = schema_of(described.RejectedHeaders)
    made["asyncapi.json"] = asyncapi(rejected_headers=headers)
    return made


def text_of(document: JsonSchema) -> str:
    """The text of a document's file."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def stale(folder: Path) -> list[str]:
    """The files that are missing, differ from what the types say, or belong to nothing."""
    made = documents()
    wrong = [
        name
        for name, document in made.items()
        if not (folder / name).is_file()
        or (folder / name).read_text(encoding="utf-8") != text_of(document)
    ]
    strays = {f"json/{path.name}" for path in (folder / "json").glob("*")} - made.keys()
    return wrong + sorted(strays)


def write(folder: Path) -> None:
    """Write every document below `folder`, and take away files that belong to none."""
    (folder / "json").mkdir(parents=True, exist_ok=True)
    for name, document in documents().items():
        (folder / name).write_text(text_of(document), encoding="utf-8")
    for stray in stale(folder):
        (folder / stray).unlink()


def main(
    arguments: Sequence[str] | None = None,
    folder: Path = FOLDER,
    say: Callable[[str], object] = sys.stdout.write,
) -> int:
    """The exit code: 0 done or all current, 1 a file is not current."""
    parser = argparse.ArgumentParser(prog="schemas.documents", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if not current")
    if not parser.parse_args(arguments).check:
        write(folder)
        return 0
    wrong = stale(folder)
    for name in wrong:
        say(f"schemas/{name} is not current: run `make schemas`\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

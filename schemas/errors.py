"""What can be wrong with data from outside, or with data we stored ourselves."""

from __future__ import annotations

from schemas.limits import ERROR_FIELD_CHARACTERS_MAX, ERROR_MESSAGE_CHARACTERS_MAX


class SchemaError(Exception):
    """The base of everything this room raises."""


class Refused(SchemaError):
    """The record breaks the contract. Its writer must mend the named field and send it again."""

    def __init__(self, code: str, message: str, field: str = "") -> None:
        """`code` is a stable word for programs, `field` the JSON path of the culprit, or "".

        Field and message are cut: both may quote what came in, and both go into headers.
        """
        super().__init__(message[:ERROR_MESSAGE_CHARACTERS_MAX])
        self.code = code
        self.field = field[:ERROR_FIELD_CHARACTERS_MAX]
        self.message = message[:ERROR_MESSAGE_CHARACTERS_MAX]


class UnknownFormat(SchemaError):
    """The stored bytes were written by a newer release: install that release, or a later one.

    Nothing was changed. Going back to an older release is not possible once a newer one has
    written to the `state` topic.
    """

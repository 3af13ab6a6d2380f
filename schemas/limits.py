"""Every bound on what may be asked, one name each, unit last.

Source: the contract's tables. Each is tested at the bound and one past it.
"""

from typing import Final

COMMAND_BYTES_MAX: Final = 1_048_576
RECORD_BYTES_MAX: Final = 2_097_152
"""Of every topic but `commands`: what it takes must fit again as due event, dead letter, reject."""

ID_CHARACTERS_MAX: Final = 256
NAME_CHARACTERS_MAX: Final = 128
DESTINATION_CHARACTERS_MAX: Final = 2_048
REFERENCE_CHARACTERS_MAX: Final = 2_048
REASON_CHARACTERS_MAX: Final = 1_024
PAYLOAD_BYTES_MAX: Final = 65_536
HEADERS_BYTES_MAX: Final = 8_192
NESTING_MAX: Final = 256
"""How deep objects and arrays may lie in one another in a payload."""

RETRY_DELAYS_MAX: Final = 64
RETRY_DELAY_S_MAX: Final = 30 * 86_400
RETRY_ATTEMPTS_MAX: Final = 1_000
VERSION_MAX: Final = 2**63 - 1

INSTANT_MS_MAX: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z."""

SECONDS_SUSPECTED_BELOW_MS: Final = 1_000_000_000_000
"""2001-09-09T01:46:40Z. A smaller positive integer is far likelier a count of seconds."""

ERROR_MESSAGE_CHARACTERS_MAX: Final = 500
ERROR_FIELD_CHARACTERS_MAX: Final = 256
ATTEMPTS_KEPT_MAX: Final = 10
"""How many of the last attempts a stored reminder remembers."""

FIRED_INSTANTS_KEPT_MAX: Final = 32
"""How many instants of earlier versions, already fired for, a stored reminder remembers."""

"""What librdkafka's properties say about encryption and accounts, in Faust's terms.

A worker's Kafka clients are of two kinds: librdkafka, which carries the reminders, and Faust's
own. Both are told once, by librdkafka's properties. What cannot be said to Faust is refused before
anything starts: a client that is less careful than the operator asked for must not come to be.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from faust import SASLCredentials, SSLCredentials

from streams.errors import BadSetting

PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISM_NAMES: Final = ("sasl.mechanism", "sasl.mechanisms")
"""librdkafka's two names of one property."""

MECHANISM_DEFAULT: Final = "GSSAPI"

VERIFICATION: Final = "enable.ssl.certificate.verification"
HOST_CHECK: Final = "ssl.endpoint.identification.algorithm"
CA_FILE: Final = "ssl.ca.location"
CA_TEXT: Final = "ssl.ca.pem"
CERTIFICATE: Final = "ssl.certificate.location"
KEY: Final = "ssl.key.location"
KEY_PASSWORD: Final = "ssl.key.password"
SSL_NAMES: Final = (CA_FILE, CA_TEXT, CERTIFICATE, KEY, KEY_PASSWORD, HOST_CHECK)

_BOOLEANS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def credentials(properties: Mapping[str, str]) -> Any:
    """Faust's `broker_credentials`; None where the brokers ask for nothing.

    Reads the certificates and the key. Raises `BadSetting`, which names the property and never
    shows a password.
    """
    protocol = _one_of(properties, "security.protocol", PROTOCOLS, "plaintext")
    context = _context(properties) if protocol in {"ssl", "sasl_ssl"} else None
    if protocol in {"sasl_plaintext", "sasl_ssl"}:
        return _account(properties, context)
    return None if context is None else SSLCredentials(context)


def _account(properties: Mapping[str, str], context: ssl.SSLContext | None) -> Any:
    # Of two names of one property the later one counts, as in librdkafka.
    given = [name for name in properties if name in MECHANISM_NAMES]
    name = given[-1] if given else MECHANISM_NAMES[0]
    mechanism = properties.get(name, MECHANISM_DEFAULT)
    if mechanism not in MECHANISMS:
        said = repr(mechanism) if given else f"it is not set, which means {MECHANISM_DEFAULT};"
        raise BadSetting(
            f"kafka: {name}: {said} is not possible for a worker: its Faust part can do "
            f"{_listed(MECHANISMS)}"
        )
    for needed in ("sasl.username", "sasl.password"):
        if not properties.get(needed):
            raise BadSetting(f"kafka: {needed}: must be set for {name} {mechanism}")
    return SASLCredentials(
        username=properties["sasl.username"],
        password=properties["sasl.password"],
        mechanism=mechanism,
        ssl_context=context,
    )


def _context(properties: Mapping[str, str]) -> ssl.SSLContext:
    for name in properties:
        if name.startswith("ssl.") and name not in SSL_NAMES:
            raise BadSetting(
                f"kafka: {name}: is not possible for a worker: its Faust part can do "
                f"{_listed((*SSL_NAMES, VERIFICATION))}"
            )
    # Not `create_default_context`: from Python 3.13 on it refuses certificates that librdkafka
    # takes, and half a worker would connect.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if _one_of(properties, HOST_CHECK, ("https", "none"), "https") == "none":
        context.check_hostname = False
    if not _BOOLEANS[_one_of(properties, VERIFICATION, tuple(_BOOLEANS), "true")]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _trust(context, properties)
    _show(context, properties)
    return context


def _trust(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    """Who may have signed the brokers' certificates: the system's authorities if none is named."""
    place = _place(properties, CA_FILE) if properties.get(CA_FILE) != "probe" else None
    text = properties.get(CA_TEXT) or None
    if place is None and text is None:
        context.load_default_certs()
        return
    folder = place if place is not None and place.is_dir() else None
    file = None if folder is not None else place
    try:
        context.load_verify_locations(cafile=file, capath=folder, cadata=text)
    except (OSError, ValueError) as error:
        names = CA_FILE if text is None else CA_TEXT if place is None else f"{CA_FILE}, {CA_TEXT}"
        raise BadSetting(f"kafka: {names}: {_reason(error)}") from None


def _show(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    """The certificate that the brokers are shown, if they are shown one."""
    certificate, key = _place(properties, CERTIFICATE), _place(properties, KEY)
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        missing = CERTIFICATE if certificate is None else KEY
        raise BadSetting(f"kafka: {missing}: must be set, since the other of the pair is")
    # A text in any case: without one, OpenSSL would stop and ask at the terminal.
    password = properties.get(KEY_PASSWORD, "")
    try:
        context.load_cert_chain(certificate, key, password)
    except (OSError, ValueError) as error:
        raise BadSetting(
            f"kafka: {CERTIFICATE}, {KEY}: {_reason(error)}; "
            f"is it a pair, and does {KEY_PASSWORD} belong to it?"
        ) from None


def _place(properties: Mapping[str, str], name: str) -> Path | None:
    """A file, or a directory, that is there and may be read."""
    if not properties.get(name):
        return None
    place = Path(properties[name])
    try:
        if not place.is_dir():
            place.open("rb").close()
    except OSError as error:
        raise BadSetting(f"kafka: {name}: {place}: {error.strerror}") from None
    return place


def _one_of(
    properties: Mapping[str, str], name: str, possible: tuple[str, ...], default: str
) -> str:
    found = properties.get(name, default).strip().lower()
    if found not in possible:
        raise BadSetting(f"kafka: {name}: {_listed(possible)}, not {found!r}")
    return found


def _reason(error: Exception) -> str:
    """Why it failed. OpenSSL names its reasons like this: NO_CERTIFICATE_OR_CRL_FOUND."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or error).replace("_", " ").lower()


def _listed(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"

"""Percent-encoded text, decoded once and strictly (N1): path segments and query strings. Pure."""

import re
from urllib.parse import unquote_to_bytes

from queen.errors import Invalid

_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_MAX_PARAMETERS = 100


def decoded(raw: str, where: str) -> str:
    """`raw` with its percent escapes resolved. Raises `Invalid` for broken escapes and for what is no UTF-8."""
    if "%" not in raw:
        return raw
    if _BROKEN_ESCAPE.search(raw) is not None:
        raise Invalid(where, "holds a '%' that starts no escape (write %25 for a percent sign)")
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise Invalid(where, "is not valid UTF-8 after percent-decoding") from None


def parameters(query_string: bytes) -> dict[str, str]:
    """The parameters of a query, `+` read as a space as forms do. A parameter that stands twice is refused."""
    if not query_string:
        return {}
    pairs = query_string.decode("latin-1").replace("+", " ").split("&")
    if len(pairs) > _MAX_PARAMETERS:
        raise Invalid("query", f"holds more than {_MAX_PARAMETERS} parameters")
    found: dict[str, str] = {}
    for pair in pairs:
        raw_name, _, raw_value = pair.partition("=")
        if not raw_name:
            continue
        name = decoded(raw_name, "query")
        if name in found:
            raise Invalid(name, "is given more than once")
        found[name] = decoded(raw_value, name)
    return found

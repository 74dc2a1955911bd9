"""The string formats that are enforced, as patterns of whole texts.

Each accepts only texts that its standard allows, and perhaps not all of them: a quoted local part
of an e-mail address, a leap second or a percent-encoded host have no place in a model's answer.
"""

_SHORT_LABEL = r"[A-Za-z0-9](?:(?:[A-Za-z0-9]|-[A-Za-z0-9]){0,30})"
_HOST = rf"{_SHORT_LABEL}(?:\.{_SHORT_LABEL}){{0,3}}"

_LEAP_YEAR = (
    r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"  # Gregorian
)
_DATE = (
    r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    rf"|{_LEAP_YEAR}-02-29)"
)
_TIME = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
    r"(?:[Zz]|[+\-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_DURATION_TIME = r"T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DURATION_DATE = r"(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_H16 = r"[0-9A-Fa-f]{1,4}"
_ATEXT = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]+"


def _ipv6() -> str:
    """RFC 4291 without embedded IPv4: eight groups, or fewer around one ``::``."""
    shortened = (
        f"(?:{_H16}:){{{before}}}(?::{_H16}){{1,{7 - before}}}"
        if before
        else f":(?::{_H16}){{1,7}}"
        for before in range(7)
    )
    ends = f"(?:{_H16}:){{1,7}}:"
    return f"(?:(?:{_H16}:){{7}}{_H16}|{ends}|{'|'.join(shortened)}|::)"


_PCHAR = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})"
_PATH = rf"(?:/{_PCHAR}*)*"
_AUTHORITY = (
    rf"(?:(?:[A-Za-z0-9\-._~!$&'()*+,;=:]|%[0-9A-Fa-f]{{2}})*@)?"
    rf"(?:\[{_ipv6()}\]|(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{{2}})*)(?::[0-9]*)?"
)
_URI = (
    rf"[A-Za-z][A-Za-z0-9+\-.]*:"
    rf"(?://{_AUTHORITY}{_PATH}|/(?:{_PCHAR}+{_PATH})?|{_PCHAR}+{_PATH})"
    rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
)

FORMATS = {
    "date-time": rf"{_DATE}[Tt]{_TIME}",
    "date": _DATE,
    "time": _TIME,
    "duration": (rf"P(?:{_DURATION_DATE}(?:{_DURATION_TIME})?|{_DURATION_TIME}|[0-9]+W)"),
    "email": rf"{_ATEXT}(?:\.{_ATEXT})*@{_HOST}",
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": _ipv6(),
    "uuid": r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    "uri": _URI,
}

"""HTTP below the application: what is not even HTTP gets the same envelope as everything else."""

import h11
import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol

from flm.errors import InvalidRequestError

_MALFORMED = InvalidRequestError(
    "This is not a well-formed HTTP request: its request line, headers, length or chunks cannot "
    "be read."
)


class EnvelopeProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with our answer to malformed requests."""

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Answer in the OpenAI envelope and close the connection."""
        body = orjson.dumps(_MALFORMED.to_dict())
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        head = h11.Response(status_code=_MALFORMED.status, headers=headers, reason=b"Bad Request")
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event=event))
        self.transport.close()

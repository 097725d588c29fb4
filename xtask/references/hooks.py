"""What Schemathesis needs to know of our API: a text of the type `application/x-ndjson` is sent as it is."""

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def ndjson(_context, value):
    return value.encode() if isinstance(value, str) else value

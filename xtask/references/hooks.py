"""What Schemathesis needs to know of our API: events in lines are sent as the text that they are."""

import schemathesis

schemathesis.serializer.alias("application/x-ndjson", "text/plain")

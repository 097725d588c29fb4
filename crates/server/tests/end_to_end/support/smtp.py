"""A mail server for tests: aiosmtpd on a free port of loopback.

The argument is a JSON object: `cert` and `key` (files; then STARTTLS is offered, and needed before AUTH), `user` and
`password` (then AUTH is needed), `refuse` (how many messages are refused at first). Prints its port, then each message as
a line of JSON.
"""

import asyncio
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

options = json.loads(sys.argv[1])


class Handler:
    refused = 0

    async def handle_DATA(self, server, session, envelope):
        if self.refused < options.get("refuse", 0):
            self.refused += 1
            return "451 4.3.0 try again later"
        message = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "tls": session.ssl is not None,
            "authenticated": session.authenticated,
            "content": envelope.content.decode("utf-8"),
        }
        print(json.dumps(message), flush=True)
        return "250 2.0.0 accepted"


def authenticate(server, session, envelope, mechanism, data):
    wanted = LoginPassword(options["user"].encode(), options["password"].encode())
    # A server that repeats the password in its refusal: the client must not log it.
    text = f"535 5.7.8 {data.password.decode()} is wrong"
    return AuthResult(success=data == wanted, handled=data == wanted, message=None if data == wanted else text)


async def serve():
    settings = {}
    if "cert" in options:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options["cert"], options["key"])
        settings["tls_context"] = context
        settings["require_starttls"] = True
    if "user" in options:
        settings["authenticator"] = authenticate
        settings["auth_required"] = True
    handler = Handler()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(handler, **settings), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(serve())

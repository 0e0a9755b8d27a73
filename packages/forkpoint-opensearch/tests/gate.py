"""A gate in front of a node that answers requests itself, as a proxy or the security plugin does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx


@contextmanager
def gate(url: str, status: int, refused: str) -> Iterator[str]:
    """The URL of a gate that passes requests on, but answers those whose path contains ``refused`` with a status."""

    class Gate(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if refused in self.path:
                found, kind, content = status, "text/plain", b"refused"
            else:
                sent = {"Content-Type": self.headers.get("Content-Type", "application/json")}
                answer = httpx.request(self.command, url + self.path, content=body, headers=sent)
                found, kind, content = answer.status_code, answer.headers.get("Content-Type", ""), answer.content
            self.send_response(found)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_HEAD = _answer  # noqa: N815  (the base class's names)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Gate)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()

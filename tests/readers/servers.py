"""Servers on this machine: S3 (moto), and HTTP with ranges, failures and slow answers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Trouble:
    """What goes wrong, and what was asked for."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str | None]] = []
        self.failures = 0  # the next requests get status 503
        self.cut = 0  # the next answers end after half of their bytes
        self.slow = 0.0  # seconds before each answer
        self.ranges = True


@contextlib.contextmanager
def http_server(root: Path) -> Iterator[tuple[str, Trouble]]:
    """Serve the files of a folder."""
    trouble = Trouble()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            trouble.requests.append((self.path, wanted))
            time.sleep(trouble.slow)
            path = root / self.path.lstrip("/")
            if trouble.failures > 0:
                trouble.failures -= 1
                return self.answer(503, b"")
            if not path.is_file():
                return self.answer(404, b"")
            data = path.read_bytes()
            if wanted is None or not trouble.ranges:
                return self.answer(200, data)
            first, last = wanted.removeprefix("bytes=").split("-")
            begin, end = int(first), min(int(last or len(data)), len(data) - 1) + 1
            return self.answer(206, data[begin:end], f"bytes {begin}-{end - 1}/{len(data)}")

        def answer(self, status: int, data: bytes, part: str | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            if trouble.ranges:
                self.send_header("Accept-Ranges", "bytes")
            if part:
                self.send_header("Content-Range", part)
            self.end_headers()
            if self.command == "GET":
                if trouble.cut > 0 and data:
                    trouble.cut -= 1
                    data = data[: len(data) // 2]
                    self.close_connection = True
                with contextlib.suppress(OSError):
                    self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", trouble
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def s3_server() -> Iterator[dict[str, object]]:
    """An S3 server with a bucket `data`: the options by which fsspec reaches it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield {
            "key": "k",
            "secret": "s",
            "client_kwargs": {"endpoint_url": f"http://{host}:{port}"},
        }
    finally:
        server.stop()

"""Answers reach the address that a request brings, as S3 takes them, and no other kind of address."""

from __future__ import annotations

import json
import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address

import pytest
from cloudformation_requests import request
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from infra.handlers.resource_answers import MAX_REASON_CHARACTERS, HttpsAnswers, Request, answer


def certificate(folder):
    """A certificate of 127.0.0.1, signed by itself, with its key in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "certificate.pem"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    return file


@pytest.fixture
def server(tmp_path, monkeypatch):
    """An HTTPS server of this machine that keeps what it gets."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    file = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    yield f"https://127.0.0.1:{server.server_port}", got
    server.shutdown()
    server.server_close()


def test_an_answer_is_put_without_a_content_type(server):
    address, got = server
    asked = Request.of({**request("Create"), "ResponseURL": f"{address}/signed?X-Amz-Signature=1"})
    answer(HttpsAnswers(), asked, resource_id="image", fault="x" * 5_000)
    [(path, content_type, body)] = got
    assert path == "/signed?X-Amz-Signature=1"
    assert not content_type
    assert body["Reason"] == "x" * MAX_REASON_CHARACTERS


@pytest.mark.parametrize("url", ["http://127.0.0.1/x", "file:///etc/passwd"])
def test_only_https_is_answered(url):
    with pytest.raises(ValueError, match="not https"):
        HttpsAnswers().send(url, b"{}")

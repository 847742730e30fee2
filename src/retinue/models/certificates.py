"""Import aiohttp without loading the system's certificates: 100 ms that local servers do not need.

The TLS contexts that aiohttp creates at import load the certificates at their first use, also when other code uses
them. This file must not know requests.
"""

import ssl
from threading import Lock, get_ident
from typing import Any

_READ = "set_default_verify_paths"
_lock = Lock()
_read = ssl.SSLContext.set_default_verify_paths
_verifying: list[ssl.SSLContext] = []


def import_aiohttp() -> None:
    """Import aiohttp; may be called in a thread."""
    importer = get_ident()

    def put_off(context: ssl.SSLContext) -> None:
        # Leave contexts alone that other threads create in the meantime.
        if get_ident() != importer or type(context) is not ssl.SSLContext:
            return _read(context)
        context.__class__ = _LateContext
        if context.verify_mode is not ssl.CERT_NONE:
            _verifying.append(context)

    with _lock:
        # Keep a replacement that another library has installed (for the system's own store).
        is_ours = _READ not in vars(ssl.SSLContext)
        try:
            if is_ours:
                setattr(ssl.SSLContext, _READ, put_off)
            import aiohttp  # noqa: F401
        finally:
            if is_ours:
                delattr(ssl.SSLContext, _READ)


def read_certificates() -> None:
    """Load the postponed certificates for contexts that verify servers; slow, so call it in a thread."""
    for context in _verifying:
        _read_now(context)


def _read_now(context: ssl.SSLContext) -> None:
    with _lock:
        if type(context) is _LateContext:
            _read(context)
            context.__class__ = ssl.SSLContext  # type: ignore[assignment]


class _LateContext(ssl.SSLContext):
    """A context that loads its certificates before their first use."""

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        _read_now(self)
        return self.wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        _read_now(self)
        return self.wrap_socket(*args, **options)

    def cert_store_stats(self) -> dict[str, int]:
        _read_now(self)
        return self.cert_store_stats()

    def get_ca_certs(self, binary_form: bool = False) -> Any:
        _read_now(self)
        return self.get_ca_certs(binary_form)

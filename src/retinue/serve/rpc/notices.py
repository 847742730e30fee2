"""What whoever sits before the caller is told, without being asked for anything."""

import uuid
from typing import Literal

from retinue.core.terminal import escape_text
from retinue.serve.rpc.link import Link


def send_notice(link: Link, text: str, kind: Literal["info", "warning", "error"] = "info") -> None:
    """Show a text to whoever sits before the caller; no answer is expected."""
    link.send(
        {
            "type": "extension_ui_request",
            "id": str(uuid.uuid4()),
            "method": "notify",
            "message": escape_text(text),
            "notifyType": kind,
        }
    )

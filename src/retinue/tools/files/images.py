"""Recognises the image formats a model can look at, by their first bytes; does not decode them."""

SNIFFED_BYTES = 4096


def sniff_image(head: bytes) -> str:
    """The mime type of an image, or nothing."""
    if head.startswith(b"\xff\xd8\xff") and head[3:4] != b"\xf7":
        return "image/jpeg"
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        return "image/png"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    if _is_bmp(head):
        return "image/bmp"
    return ""


def _is_bmp(head: bytes) -> bool:
    # Two letters are a weak signature, so the header must make sense too.
    if len(head) < 26 or not head.startswith(b"BM"):
        return False
    header_size = int.from_bytes(head[14:18], "little")
    pixels_at = int.from_bytes(head[10:14], "little")
    return header_size in (12, 40, 52, 56, 64, 108, 124) and pixels_at >= 14 + header_size

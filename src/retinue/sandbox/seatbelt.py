"""Convert a sandbox profile to the policy language of macOS's sandbox-exec.

Written from public descriptions; our tests cannot run it, so the probe tries it before use and reports it as partial.
It denies by default: with a policy that allows by default, `open` and `osascript` start programs outside of it.
"""

import os

from retinue.sandbox.profile import Profile, is_below

PROGRAM = "/usr/bin/sandbox-exec"
# System aliases; the kernel checks the real paths.
_ALIASES = {"/tmp": "/private/tmp", "/var": "/private/var", "/etc": "/private/etc"}
_DEVICES = ("/dev/null", "/dev/zero", "/dev/dtracehelper", "/dev/tty")
_BASE = """(version 1)
(deny default)
(allow process-fork)
(allow process-exec)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow sysctl-read)
(allow file-read*)
(allow file-read-metadata)
(allow file-ioctl (subpath "/dev"))
(allow ipc-posix-sem)
(allow mach-lookup
    (global-name "com.apple.system.notification_center")
    (global-name "com.apple.system.opendirectoryd.libinfo")
    (global-name "com.apple.system.logger"))
(deny appleevent-send)
(deny lsopen)
(deny job-creation)"""
_NETWORK = """(allow network*)
(allow system-socket)
(allow mach-lookup
    (global-name "com.apple.SystemConfiguration.configd")
    (global-name "com.apple.trustd")
    (global-name "com.apple.dnssd.service"))"""


def render_profile(profile: Profile, *, tmp: str) -> str:
    """Return the policy text for `sandbox-exec -p`."""
    written = [tmp] if profile.is_readonly else [tmp, profile.workspace, *profile.writable]
    parts = [_BASE, _render("allow file-write*", "literal", _DEVICES), _render("allow file-write*", "subpath", written)]
    if profile.secrets:
        parts.append(_render("deny file-read* file-write*", "subpath", profile.secrets))
    # The last matching rule wins, so visible paths inside hidden ones come afterwards.
    if is_below(tmp, profile.secrets):
        parts.append(_render("allow file-read* file-write*", "subpath", [tmp]))
    if shown := [path for path in (profile.workspace, *profile.exposed) if is_below(path, profile.secrets)]:
        parts.append(_render("allow file-read*", "subpath", shown))
    if profile.protected and not profile.is_readonly:
        parts.append(_render("deny file-write*", "subpath", profile.protected))
        if is_below(profile.workspace, (*profile.secrets, *profile.protected)):
            parts.append(_render("allow file-write*", "subpath", [profile.workspace]))
            inner = [path for path in profile.protected if is_below(path, [profile.workspace])]
            parts += [_render("deny file-write*", "subpath", inner)] if inner else []
    if profile.network and not profile.is_readonly:
        parts.append(_NETWORK)
    return "\n".join(parts) + "\n"


def canonicalise(path: str) -> str:
    """Return the path as the kernel sees it."""
    for alias, real in _ALIASES.items():
        if path == alias or path.startswith(alias + "/"):
            return real + path[len(alias) :]
    return path


def _render(verb: str, kind: str, paths: "tuple[str, ...] | list[str]") -> str:
    lines = [f"    ({kind} {_quote(canonicalise(os.path.normpath(path)))})" for path in paths]
    return "\n".join([f"({verb}", *lines]) + ")"


def _quote(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'

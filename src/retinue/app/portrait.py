"""One agent in words: what `retinue agents show` prints and the menu of agents shows."""

from typing import Any

from retinue.core.terminal import escape_line, escape_text


def render_portrait(about: dict[str, Any]) -> str:
    """Its fields, what it may use and why not more, and what is odd about its file; safe on a terminal."""
    lines = [f"{about['name']}  ({about['source']}, {about['dialect']})", f"  {about['path']}"]
    if not about["enabled"]:
        lines.append("  disabled: it cannot be run")
    lines += ["", "fields"]
    told = {item["field"]: item["message"] for item in about["diagnostics"] if item["field"]}
    for field in about["fields"]:
        remark = "  ← see below" if field["field"] in told else ""
        lines.append(f"  {field['line']:>4}  {escape_line(field['text'], 100)}{remark}")
    lines += ["", "tools, as a child of the main agent"]
    lines += [f"  + {tool['name']}{_render_target(tool)}" for tool in about["allowed"]] or ["  none"]
    lines += [f"  - {tool['name']}: {escape_line(tool['reason'], 200)}" for tool in about["refused"]]
    lines += [f"  ! {escape_line(text, 200)}" for text in about["warnings"]]
    lines += ["", f"model     {about['model'] or 'that of the caller'}{' (a wish)' if about['modelWish'] else ''}"]
    lines.append(f"thinking  {about['thinking'] or 'that of the caller'}")
    lines.append(f"turns     {'no limit' if not about['maxTurns'] else about['maxTurns']}")
    lines.append(f"prompt    {about['promptMode']}, {len(about['prompt'].splitlines())} lines")
    lines += [f"hides     {path}" for path in about["shadows"]]
    if about["diagnostics"]:
        lines += ["", "remarks"]
        lines += [f"  {item['severity']}: {escape_line(item['message'], 400)}" for item in about["diagnostics"]]
    return escape_text("\n".join(lines))


def _render_target(tool: dict[str, str]) -> str:
    return f" (is {tool['tool']})" if tool["tool"] != tool["name"] else ""

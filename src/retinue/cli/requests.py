"""From flags to what the app is asked for."""

from retinue.app import Request, SessionWish
from retinue.cli.options import Options


def to_request(options: Options) -> Request:
    """What the flags ask for."""
    tools = () if options.no_tools else None if options.tools is None else _split(options.tools)
    return Request(
        model=options.model or None,
        provider=options.provider or None,
        api_key=options.api_key or None,
        thinking=options.thinking or None,  # type: ignore[arg-type]
        models=_split(options.models),
        session=_to_wish(options),
        agent=options.agent or None,
        tools=tools,
        exclude_tools=_split(options.exclude_tools),
        system_prompt=options.system_prompt,
        append_system_prompt=options.append_system_prompt,
        context_files=not options.no_context_files,
        skills=not options.no_skills,
        approve=True if options.approve else False if options.no_approve else None,
        offline=options.offline,
    )


def _to_wish(options: Options) -> SessionWish:
    where, name = options.session_dir, options.name
    if options.no_session:
        return SessionWish("none", name=name)
    if options.continue_:
        return SessionWish("newest", "", where, name)
    if options.session:
        return SessionWish("named", options.session, where, name)
    if options.session_id:
        return SessionWish("exact", options.session_id, where, name)
    return SessionWish("new", "", where, name)


def _split(names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))

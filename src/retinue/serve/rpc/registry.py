"""The commands there are, by hand."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from retinue.serve.rpc import habits, models, sessions, shell, state
from retinue.serve.rpc import prompts as prompting
from retinue.serve.rpc.command import Command
from retinue.serve.rpc.link import Link

Action = Callable[[Link, Command], Awaitable[Any]]
"""Returns the `data` of the answer, UNSET for none. Raises RetinueError for what is answered with an error."""

ACTIONS: Mapping[str, Action] = {
    "prompt": prompting.prompt,
    "steer": prompting.steer,
    "follow_up": prompting.follow_up,
    "abort": prompting.abort,
    "clear_queue": prompting.clear_queue,
    "get_commands": prompting.get_commands,
    "get_state": state.get_state,
    "get_messages": state.get_messages,
    "get_last_assistant_text": state.get_last_assistant_text,
    "get_session_stats": state.get_session_stats,
    "get_fork_messages": state.get_fork_messages,
    "get_entries": state.get_entries,
    "get_tree": state.get_tree,
    "set_model": models.set_model,
    "cycle_model": models.cycle_model,
    "get_available_models": models.get_available_models,
    "set_thinking_level": models.set_thinking_level,
    "cycle_thinking_level": models.cycle_thinking_level,
    "get_available_thinking_levels": models.get_available_thinking_levels,
    "set_steering_mode": habits.set_steering_mode,
    "set_follow_up_mode": habits.set_follow_up_mode,
    "compact": habits.compact,
    "set_auto_compaction": habits.set_auto_compaction,
    "set_auto_retry": habits.set_auto_retry,
    "abort_retry": habits.abort_retry,
    "bash": shell.bash,
    "abort_bash": shell.abort_bash,
    "new_session": sessions.new_session,
    "switch_session": sessions.switch_session,
    "fork": sessions.fork,
    "clone": sessions.clone,
    "set_session_name": sessions.set_session_name,
    "export_html": sessions.export_html,
}
SWITCHES = frozenset({"new_session", "switch_session", "fork", "clone"})
"""While one of these goes on, no other command is taken."""

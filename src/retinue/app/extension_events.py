"""What extensions hear of a crew on their channels, and what they may ask of it there.

The records are those of the JSON stream, under the names that pi's subagent packages use.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from retinue.core.events import Event
from retinue.core.run import Run
from retinue.engine.bus import Bus
from retinue.features.extensions.channels import Channels
from retinue.features.extensions.contained import make_handler
from retinue.settings.subagents import CREW_SETTINGS, CrewSettings
from retinue.surfaces.fleet.ports import FleetPorts
from retinue.surfaces.fleet.records import LifeRecords
from retinue.surfaces.fleet.rpc import METHODS, PREFIX, FleetRpc

OWNER = "subagents"
"""What our own part in it is told under."""


class Exchange:
    """Between the channels and one main agent's crew."""

    def __init__(
        self,
        channels: Channels,
        *,
        open_ports: Callable[[], Awaitable[FleetPorts]],
        find: Callable[[str], Run | None],
    ) -> None:
        """`open_ports` gives the main agent's, and makes the crew if there is none yet."""
        self._channels = channels
        self._life = LifeRecords(find)
        rpc = FleetRpc(open_ports, channels.emit)
        for method in METHODS:
            answer = make_handler(OWNER, __file__, frozenset(), partial(rpc.answer, method))
            channels.listen(f"{PREFIX}{method}", answer)

    def open(self, bus: Bus, settings: CrewSettings) -> None:
        """Begin to tell what happens."""
        bus.listen(self._hear, pieces=False)
        self._channels.emit("subagents:settings_loaded", {"settings": _list_settings(settings)})
        self._channels.emit("subagents:ready", {})

    def tell_change(self, settings: CrewSettings, *, persisted: bool) -> None:
        """Say that the user has changed a setting, for good or for this session only."""
        self._channels.emit(
            "subagents:settings_changed", {"settings": _list_settings(settings), "persisted": persisted}
        )

    def _hear(self, event: Event) -> None:
        record = self._life(event)
        if record is None or not self._channels.has_listeners(record["type"]):
            return
        # A channel has its name already, so that the payload's own type can be called that.
        facts = {("type" if name in ("agentType", "change") else name): record[name] for name in list(record)[1:]}
        self._channels.emit(record["type"], facts)


def _list_settings(settings: CrewSettings) -> dict[str, Any]:
    """The settings in force that have no parts, by their names in the file."""
    plain = (setting for setting in CREW_SETTINGS if "." not in setting.key)
    return {setting.key: getattr(settings, setting.field) for setting in plain}

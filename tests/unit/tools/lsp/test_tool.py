import pytest

from retinue.core.tool_table import LSP_ACTIONS
from retinue.tools.lsp.jsonrpc import LspFailed
from retinue.tools.lsp.tool import ACTIONS, PRIVILEGED, Permission, permit_process


def refuse(permission: Permission, action: str) -> str:
    try:
        permission.check(action)
    except LspFailed as error:
        assert error.code == "LSP_ACTION_NOT_ALLOWED"
        return str(error)
    return ""


@pytest.mark.spec("devkit:77")
def test_privileged_actions_are_off():
    refused = {action: refuse(Permission(), action) for action in ACTIONS}
    assert refused == {
        **dict.fromkeys(LSP_ACTIONS, ""),
        **{name: f'Action "{name}" is disabled: lsp.tool.allowMutatingActions is false.' for name in PRIVILEGED},
    }


def test_setting_allows_privileged_actions():
    assert [refuse(Permission(allow_mutating=True), action) for action in ACTIONS] == [""] * len(ACTIONS)


@pytest.mark.spec("devkit:77")
def test_children_never_have_privileges():
    child = Permission(is_child=True, actions=ACTIONS, allow_mutating=True)
    text = 'Action "rename" is disabled: privileged LSP actions are disabled in subagent processes.'
    assert (refuse(child, "rename"), refuse(child, "hover")) == (text, "")


@pytest.mark.spec("devkit:78")
def test_unlisted_action_is_refused_first():
    child = Permission(is_child=True, actions=("hover",))
    texts = [f'LSP action "{name}" is not allowed for this subagent process.' for name in ("symbols", "rename")]
    assert [refuse(child, name) for name in ("symbols", "rename")] == texts


@pytest.mark.spec("devkit:78")
@pytest.mark.parametrize(
    ("allow", "actions", "action", "text"),
    [
        ("1", "hover, symbols", "symbols", ""),
        ("1", "hover", "symbols", 'LSP action "symbols" is not allowed for this subagent process.'),
        ("1", "", "hover", 'LSP action "hover" is not allowed for this subagent process.'),
        ("1", "rename", "rename", 'LSP action "rename" is not allowed for this subagent process.'),
        ("0", "hover", "hover", "LSP tool is disabled for this subagent process."),
        ("true", "hover", "hover", "LSP tool is disabled for this subagent process."),
        ("", "hover", "hover", "LSP tool is disabled for this subagent process."),
    ],
)
def test_environment_limits_a_process(allow, actions, action, text):
    environment = {"PI_SUBAGENT_ALLOW_LSP": allow, "PI_SUBAGENT_LSP_ACTIONS": actions}
    assert refuse(permit_process(environment, LSP_ACTIONS), action) == text

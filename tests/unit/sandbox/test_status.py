import pytest

from retinue.sandbox.status import SandboxStatus


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (SandboxStatus("unavailable", reason="no program"), "unavailable: no program"),
        (SandboxStatus("enforced", "bwrap", version="0.8"), "enforced by bubblewrap 0.8"),
        (
            SandboxStatus("partial", "landlock", reason="old", weaker=("a", "b")),
            "partly enforced by Landlock and seccomp; old; a; b",
        ),
    ],
)
def test_status_is_one_sentence(status: SandboxStatus, sentence: str) -> None:
    assert (status.sentence, status.is_usable) == (sentence, status.state != "unavailable")

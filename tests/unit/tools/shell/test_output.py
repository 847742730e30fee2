from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from retinue.tools.shell.output import Output, OutputFile


def collect(folder: Path | None, pieces: list[bytes], cap: int = 1 << 20) -> Output:
    output = Output(OutputFile(folder, cap=cap))
    for piece in pieces:
        output.add(piece)
    output.finish()
    output.spill.finish()
    return output


def test_short_output_makes_no_file(tmp_path: Path) -> None:
    output = collect(tmp_path, [b"one\n", b"two"])
    assert (output.view().content, output.total_lines, list(tmp_path.iterdir())) == ("one\ntwo", 2, [])


def test_spill_has_every_byte(tmp_path: Path) -> None:
    pieces = [bytes([65 + number % 26]) * 999 + b"\n" for number in range(200)]
    output = collect(tmp_path, pieces)
    assert Path(output.spill.path).read_bytes() == b"".join(pieces)
    assert output.view().content.endswith(pieces[-1].decode().rstrip("\n"))


def test_capped_spill_keeps_both_ends(tmp_path: Path) -> None:
    data = b"".join(b"%07d\n" % number for number in range(40_000))
    pieces = [data[at : at + 1777] for at in range(0, len(data), 1777)]
    output = collect(tmp_path, pieces, cap=100_000)
    kept = Path(output.spill.path).read_bytes()
    head, gap, tail = kept.partition(b"\n[... %d bytes were not kept here ...]\n" % output.spill.dropped)
    assert gap and data.startswith(head) and data.endswith(tail)
    assert (len(head) + len(tail) + output.spill.dropped, len(kept) <= 100_000) == (len(data), True)


def test_overflow_below_cap_is_whole(tmp_path: Path) -> None:
    data = b"x" * 90_000
    output = collect(tmp_path, [data[:60_000], data[60_000:]], cap=100_000)
    assert (Path(output.spill.path).read_bytes(), output.spill.dropped) == (data, 0)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=6))
def test_pieces_do_not_matter(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    output, whole = collect(None, pieces), collect(None, [data])
    assert (output.view(), output.invalid) == (whole.view(), whole.invalid)
    assert output.view().content == data.decode("utf-8", "replace").replace("\0", "\ufffd")

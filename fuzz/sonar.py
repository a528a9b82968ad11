# ruff: noqa: INP001 - a program, no module
"""A fuzz target for atheris: Sonar's JSON, decoded, translated to lines and back.

``python fuzz/sonar.py -max_total_time=60 tests/data/sonar`` looks for bytes that raise, that are
read differently in small blocks, or whose envelopes are not what is encoded again.
"""

import sys

import atheris

with atheris.instrument_imports(include=["ccpipe.formats.sonar", "ccpipe.translate.sonar"]):
    from ccpipe.errors import EncodeError
    from ccpipe.formats.sonar import Decoder, Envelope, Envelopes, decode, encode
    from ccpipe.formats.sonar.profiles import STYLES
    from ccpipe.translate.sonar.cc_to_sonar import CcToSonar
    from ccpipe.translate.sonar.sonar_to_cc import SonarToCc


def check(payload: bytes) -> None:
    """Decode; the first byte chooses strictness and block size."""
    options, payload = payload[:1] or b"\0", payload[1:]
    strict, size = bool(options[0] & 1), 1 + options[0] // 2
    whole = decode(payload, strict=strict)
    pieces = in_blocks(Decoder(strict=strict), payload, size)
    assert (pieces, pieces.rejected) == (whole, whole.rejected)
    for envelope in whole:
        encode_in_every_profile(envelope)
        translate(envelope)


def in_blocks(decoder: Decoder, payload: bytes, size: int) -> Envelopes:
    """Decode a payload block by block."""
    parts = [decoder.feed(payload[i : i + size]) for i in range(0, len(payload), size)]
    parts.append(decoder.finish())
    return Envelopes.concat(parts)


def encode_in_every_profile(envelope: Envelope) -> None:
    """Output by the specification is read back unchanged, other output as some envelope."""
    for profile in STYLES:
        try:
            encoded = encode(envelope, profile=profile)  # type: ignore[arg-type]
        except EncodeError:
            continue
        (again,) = decode(encoded)
        assert profile != "spec" or again == envelope


def translate(envelope: Envelope) -> None:
    """Translate twice, as a late sample and to lines and back."""
    there, back = SonarToCc(all_jobs=True), CcToSonar()
    for _ in range(2):
        back.feed(there.feed(Envelopes([envelope])))
    back.feed(there.flush())
    back.flush()


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()

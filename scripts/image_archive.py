"""Write a container image of files on this machine, as an archive that every engine imports."""

import hashlib
import json
import re
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path


def write_archive(
    archive: Path, name: str, files: Mapping[str, Path], command: Sequence[str]
) -> None:
    """Write an image of a few files, by their paths in it, or of a directory at ``/``.

    Its processes are of the user 10001, as those of ccpipe's image.
    """
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        for place, path in files.items():
            tar.add(path.resolve() if path.is_symlink() else path, place.lstrip("/") or ".")
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": list(command), "User": "10001:10001"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        tar.add(layer, "layer.tar")
        for member, value in (("config.json", config), ("manifest.json", manifest)):
            data = json.dumps(value).encode()
            entry = tarfile.TarInfo(member)
            entry.size = len(data)
            tar.addfile(entry, BytesIO(data))
    layer.unlink()


def with_libraries(program: Path) -> dict[str, Path]:
    """Return a program with the shared libraries that it needs, each at its own path."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    libraries = re.findall(r"(?:=> |^\t)(/\S+) \(", done.stdout, re.MULTILINE)
    return {each: Path(each) for each in (str(program), *libraries)}

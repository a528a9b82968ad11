"""Images of files on this machine; engines import them in ``make site``."""

import hashlib
import json
import sys
import tarfile
from pathlib import Path

from scripts.image_archive import with_libraries, write_archive


def test_archive_has_layer_of_its_files_and_configuration(tmp_path: Path) -> None:
    """As `podman save` writes it: a manifest, the digest of the layer, no file beside it."""
    program = tmp_path / "program"
    program.write_text("text")
    (tmp_path / "link").symlink_to(program)
    archive = tmp_path / "image.tar"
    write_archive(archive, "localhost/x:1", {"/bin/x": tmp_path / "link"}, ["/bin/x"])
    with tarfile.open(archive) as tar:
        files = {name: tar.extractfile(name) for name in tar.getnames()}
        data = {name: file.read() for name, file in files.items() if file is not None}
    [manifest] = json.loads(data["manifest.json"])
    assert manifest["RepoTags"] == ["localhost/x:1"]
    config = json.loads(data[manifest["Config"]])
    assert config["config"] == {"Entrypoint": ["/bin/x"], "User": "10001:10001"}
    [layer] = manifest["Layers"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(data[layer]).hexdigest()}"]
    (tmp_path / "layer.tar").write_bytes(data[layer])
    with tarfile.open(tmp_path / "layer.tar") as tar:
        [member] = tar.getmembers()
        assert member.name == "bin/x"
        assert member.isfile()  # the link's target
    assert not (tmp_path / "image.layer").exists()


def test_program_comes_with_its_libraries() -> None:
    """Each at its own path; a static program has none."""
    files = with_libraries(Path(sys.executable).resolve())
    assert all(Path(place) == path and path.is_file() for place, path in files.items())
    assert any("libc.so" in place for place in files)

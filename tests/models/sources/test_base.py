import pytest

from flm.errors import DownloadError
from flm.models.sources.base import Silent, digest_file, safe_path


@pytest.mark.parametrize("name", ["a.gguf", "a/b.json", "ü b.txt", "..a", "a..b/c", ".hidden"])
def test_names_inside_the_folder(tmp_path, name):
    assert safe_path(tmp_path, name).is_relative_to(tmp_path)


@pytest.mark.parametrize("name", ["", ".", "../a", "a/../../b", "/etc/x", "a\\b", "C:/x", "a\0b"])
def test_names_that_would_leave_it(tmp_path, name):
    with pytest.raises(DownloadError, match="outside the model's folder"):
        safe_path(tmp_path, name)


def test_digest_of_known_content(tmp_path):
    path = tmp_path / "hello"
    path.write_bytes(b"hello\n")
    digest = digest_file(path, Silent())
    assert digest.size == 6
    # What `sha256sum` and `git hash-object` print for it.
    assert digest.sha256 == "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
    assert digest.git_sha1 == "ce013625030ba8dba906f756967f9e9ca394464a"

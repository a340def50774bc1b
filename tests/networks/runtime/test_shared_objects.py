"""Objects of the run time's C code are compiled once for a compiler and kept."""

import pytest
from chameleon_core._errors import TargetError
from chameleon_networks._c_runtime import linking


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """The sources that were compiled so far, beginning with an empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sources = []
    compile_c = linking.compile_c

    def noted(source, target, *folders):
        sources.append(source.name)
        compile_c(source, target, *folders)

    monkeypatch.setattr(linking, "compile_c", noted)
    linking.shared_objects.cache_clear()
    yield sources
    linking.shared_objects.cache_clear()


@pytest.mark.full
def test_another_process_takes_what_the_first_one_compiled(compiled, monkeypatch):
    first = linking.shared_objects()
    assert compiled == list(linking._SHARED)
    linking.shared_objects.cache_clear()
    again = linking.shared_objects()
    assert compiled == list(linking._SHARED)
    assert [file.read_bytes() for file in again] == [file.read_bytes() for file in first]
    linking.shared_objects.cache_clear()
    monkeypatch.setattr(linking, "_FLAGS", (*linking._FLAGS, "-DANOTHER"))
    linking.shared_objects()
    assert compiled == 2 * list(linking._SHARED)


def test_a_cache_that_cannot_be_written_is_no_error(compiled, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert all(file.exists() for file in linking.shared_objects())
    assert compiled == list(linking._SHARED)


@pytest.mark.parametrize("named", ["", "/nowhere/cc -O1"])
def test_without_a_compiler_it_says_so(compiled, monkeypatch, named):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("CC", named)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        TargetError, match=f"there is no C compiler {named[:11] or '.cc'}"
    ) as caught:
        linking.shared_objects()
    assert "chameleon compile" in str(caught.value.hint)
    assert compiled == []

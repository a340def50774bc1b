"""Puts an aarch64 Linux with Python and TVM into a folder, for ``qemu-aarch64`` to run.

Packages come from Debian (python3.11 and what it loads), wheels from PyPI: the very version of TVM
that is installed here. Nothing is installed on this machine, which has to be a Debian with network.

    python tests/runners/rpc/prepare_aarch64.py FOLDER
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path

MIRROR = "http://deb.debian.org/debian"
SUITE = "bookworm"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PYTHON = "3.11"
DEBIAN = (
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6"),
    *("libstdc++6", "libgcc-s1", "zlib1g", "libexpat1", "libssl3", "libffi8", "libbz2-1.0"),
    *("liblzma5", "libsqlite3-0", "libuuid1", "libcrypt1"),
)
SAME_VERSION = ("apache-tvm", "apache-tvm-ffi")
ANY_VERSION = ("numpy", "ml_dtypes", "psutil", "cloudpickle", "typing_extensions")
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")


def main():
    """Fill the folder; what is there already is replaced."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve()
    with tempfile.TemporaryDirectory() as name:
        debian(Path(name), folder / "root")
        wheels(Path(name), folder / "site")


def debian(work, root):
    """Unpack Debian's packages for arm64, with lists of apt's own in a temporary folder."""
    for row in ("lists/partial", "cache/archives/partial", "debs"):
        (work / row).mkdir(parents=True)
    (work / "status").touch()
    sources = work / "sources.list"
    sources.write_text(f"deb [arch=arm64 signed-by={KEYRING}] {MIRROR} {SUITE} main\n")
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/nonexistent",
        "Dir::State::Lists": work / "lists",
        "Dir::State::status": work / "status",
        "Dir::Cache": work / "cache",
    }
    apt = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in options.items())]
    run([*apt, "update"])
    run([*apt, "download", *DEBIAN], cwd=work / "debs")
    root.mkdir(parents=True, exist_ok=True)
    for package in sorted((work / "debs").glob("*.deb")):
        run(["dpkg", "-x", package, root])


def wheels(work, site):
    """Unpack the wheels of TVM and of what it imports."""
    wanted = [f"{name}=={metadata.version(name)}" for name in SAME_VERSION]
    platforms = [f"--platform={row}" for row in PLATFORMS]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", "--no-deps"]
    run([*pip, *platforms, f"--python-version={PYTHON}", "-d", work, *wanted, *ANY_VERSION])
    for wheel in sorted(work.glob("*.whl")):
        with zipfile.ZipFile(wheel) as opened:
            opened.extractall(site)


def run(command, cwd=None):
    """Run a command that has to succeed."""
    subprocess.run([str(word) for word in command], cwd=cwd, check=True)


if __name__ == "__main__":
    main()

"""A wheel of opwright for one Python and machine: the package as it lies here, its core compiled, and a kernel table.

Where it is installed no compiler is needed for what the table holds.  The files are those that `pip install` puts
into site-packages: pyproject.toml names them in a checkout, the installation itself elsewhere.

May import: runtime.toolchain, runtime.resources.
"""

from __future__ import annotations

import base64
import hashlib
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from .. import __version__, resources, toolchain
from ..errors import OpwrightError
from ..files import replacing

__all__ = ["WheelError", "wheel_tag", "write_wheel"]


class WheelError(OpwrightError):
    """The package's own files or metadata are not there."""


def wheel_tag() -> str:
    """Such as cp311-cp311-linux_x86_64: the Python whose C API the core was compiled for, and the machine."""
    soabi = str(sysconfig.get_config_var("SOABI") or "")
    if not soabi.startswith("cpython-"):
        raise WheelError(f"a wheel is made for CPython; this Python is {soabi or 'unnamed'}")
    python = f"cp{soabi.split('-')[1]}"
    return f"{python}-{python.rstrip('td')}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def package_files() -> Iterator[tuple[str, Path]]:
    """Name in site-packages, and file, of everything the package holds."""
    root = resources.checkout()
    if root is None:
        home = Path(__file__).resolve().parents[1]
        for path in sorted(home.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so":
                name = path.relative_to(home)
                if name.parts[:2] != ("_data", "kernels"):
                    yield f"opwright/{name.as_posix()}", path
        return
    tool = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    places: dict[str, str] = tool["package-dir"]
    for package in tool["packages"]:
        folder = root / _folder_of(package, places)
        patterns = [*tool["package-data"].get(package, ()), "*.py"]
        inner = {p for p in tool["packages"] if p.startswith(f"{package}.")}
        taken = {root / _folder_of(p, places) for p in inner}
        for path in sorted({p for pattern in patterns for p in folder.glob(pattern)}):
            if path.is_file() and "__pycache__" not in path.parts and path.parent not in taken:
                yield f"{package.replace('.', '/')}/{path.relative_to(folder).as_posix()}", path


def _folder_of(package: str, places: dict[str, str]) -> str:
    if package in places:
        return places[package]
    parent, _, name = package.rpartition(".")
    return f"{_folder_of(parent, places)}/{name}"


def write_wheel(out: Path, kernels: Path, stubs: Mapping[str, str]) -> Path:
    """The wheel, into `out`; `kernels`: a folder that `write_table` wrote; `stubs`: what stubs.py makes."""
    tag = wheel_tag()
    try:
        about = metadata.distribution("opwright")
        described = about.read_text("METADATA") or ""
        entries = about.read_text("entry_points.txt") or ""
    except metadata.PackageNotFoundError:
        described = ""
    if not described:
        raise WheelError("the metadata of opwright is not installed", hint="pip install -e . in the checkout")
    info = f"opwright-{__version__}.dist-info"
    core = toolchain.build_core()
    path = out / f"opwright-{__version__}-{tag}.whl"
    record: list[str] = []
    with replacing(path, durable=False) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as wheel:

        def add(name: str, data: bytes) -> None:
            about_file = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # equal files, equal wheels
            about_file.compress_type = zipfile.ZIP_DEFLATED
            about_file.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            wheel.writestr(about_file, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")

        for name, source in package_files():
            if source.suffix != ".pyi":
                add(name, source.read_bytes())
        for name, text in stubs.items():
            add(f"opwright/{name}", text.encode())
        add(f"opwright/_core{sysconfig.get_config_var('EXT_SUFFIX')}", core.read_bytes())
        for source in sorted(p for p in kernels.iterdir() if p.is_file()):
            add(f"opwright/_data/kernels/{source.name}", source.read_bytes())
        add(f"{info}/METADATA", described.encode())
        add(f"{info}/entry_points.txt", entries.encode())
        text = f"Wheel-Version: 1.0\nGenerator: opwright {__version__}\nRoot-Is-Purelib: false\nTag: {tag}\n"
        add(f"{info}/WHEEL", text.encode())
        record.append(f"{info}/RECORD,,")
        wheel.writestr(f"{info}/RECORD", "\n".join(record) + "\n")
    return path

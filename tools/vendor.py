"""Fetch the browser libraries that the dashboard ships, and write their manifest.

``python tools/vendor.py`` checks every vendored file against the manifest. ``--refresh`` fetches the named versions
with npm, takes the named files out of the packages, and writes the files and the manifest again. Bare imports are
rewritten to relative ones: an import map would have to be an inline script, which the content security policy forbids.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Package:
    """One npm package, and which of its files are taken."""

    name: str
    version: str
    files: dict[str, str]
    """Path in the package: name in our folder."""


DASHBOARD = (
    Package("preact", "11.2.0", {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "preact-hooks.js"}),
    Package("@preact/signals-core", "1.14.5", {"dist/signals-core.mjs": "signals-core.js"}),
    Package("@preact/signals", "2.11.4", {"dist/signals.mjs": "signals.js"}),
    Package("uplot", "1.6.32", {"dist/uPlot.esm.js": "uplot.js", "dist/uPlot.min.css": "uplot.css"}),
)
TESTS = (Package("axe-core", "4.14.0", {"axe.min.js": "axe.min.js"}),)
FOLDERS = {
    ROOT / "src" / "windlass" / "server" / "static" / "vendor": DASHBOARD,
    ROOT / "tests" / "server" / "browser" / "vendor": TESTS,
}
IMPORTS = {
    "preact": "./preact.js",
    "preact/hooks": "./preact-hooks.js",
    "@preact/signals-core": "./signals-core.js",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--refresh", action="store_true", help="fetch the packages with npm and write them again")
    if parser.parse_args().refresh:
        for folder, packages in FOLDERS.items():
            refresh(folder, packages)
    wrong = [line for folder in FOLDERS for line in mistakes(folder)]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def mistakes(folder: Path) -> list[str]:
    """Every difference between a folder and its manifest, one sentence each."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    known = {one["file"]: one["sha256"] for package in manifest["packages"] for one in package["files"]}
    there = {path.name for path in folder.iterdir() if path.name not in (MANIFEST, "LICENSES")}
    found = [f"{folder / name}: not in the manifest" for name in sorted(there - known.keys())]
    for name, digest in sorted(known.items()):
        path = folder / name
        if not path.exists():
            found.append(f"{path}: missing")
        elif sha256(path.read_bytes()) != digest:
            found.append(f"{path}: its sha256 is not that of the manifest")
    return found


def refresh(folder: Path, packages: tuple[Package, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    listed, licences = [], []
    for package in packages:
        with tempfile.TemporaryDirectory() as temporary, fetched(package, Path(temporary)) as archive:
            about = json.loads(member(archive, "package.json"))
            licences.append(f"{package.name} {package.version}\n\n{member(archive, 'LICENSE').decode()}")
            files = []
            for inside, name in package.files.items():
                original = member(archive, inside)
                content = rewritten(original) if name.endswith(".js") else original
                (folder / name).write_bytes(content)
                files.append({"file": name, "from": inside, "sha256": sha256(content), "sha256_from": sha256(original)})
        listed.append({"name": package.name, "version": package.version, "license": about["license"], "files": files})
    (folder / MANIFEST).write_text(json.dumps({"packages": listed}, indent=2) + "\n", encoding="utf-8")
    (folder / "LICENSES").write_text("\n\n----\n\n".join(licences), encoding="utf-8")


def fetched(package: Package, into: Path) -> tarfile.TarFile:
    subprocess.run(["npm", "pack", "--silent", f"{package.name}@{package.version}"], cwd=into, check=True)
    return tarfile.open(next(into.glob("*.tgz")))


def member(archive: tarfile.TarFile, path: str) -> bytes:
    found = archive.extractfile(f"package/{path}")
    assert found is not None, path
    return found.read()


def rewritten(content: bytes) -> bytes:
    """With relative imports, and without the reference to a source map that is not shipped."""
    text = re.sub(r"\n?//# sourceMappingURL=\S+\s*$", "\n", content.decode())

    def relative(found: re.Match[str]) -> str:
        return f'{found[1]}"{IMPORTS[found[2]]}"' if found[2] in IMPORTS else found[0]

    return re.sub(r'(\bfrom\s*)"([^"]+)"', relative, text).encode()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    sys.exit(main())

"""Check the types of the dashboard's JavaScript with TypeScript: `tsc --noEmit --checkJs --strict`.

    npm install --prefix tools/typescript --no-package-lock     (once; `make typescript` does it)
    python tools/typescript/check.py

The vendored libraries are minified and have no types of their own: `vendor/*.d.ts` says what is used of them. They are
checked in a copy, so that the folder that is shipped has nothing but what browsers load.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
STATIC = HERE.parent.parent / "src" / "windlass" / "server" / "static"
COMPILER = HERE / "node_modules" / "typescript" / "bin" / "tsc"
OPTIONS = {
    "allowJs": True,
    "checkJs": True,
    "strict": True,
    "noEmit": True,
    "noUnusedLocals": True,
    "target": "es2023",
    "module": "esnext",
    "moduleResolution": "bundler",
    "lib": ["es2023", "dom", "dom.iterable"],
    "types": [],
}


def main() -> int:
    node = shutil.which("node")
    if node is None or not COMPILER.is_file():
        print("TypeScript is missing: run make typescript (it needs Node and npm)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "static"
        shutil.copytree(STATIC, copy, ignore=shutil.ignore_patterns("vendor"))
        shutil.copytree(HERE / "vendor", copy / "vendor")
        (copy / "tsconfig.json").write_text(json.dumps({"compilerOptions": OPTIONS, "include": ["**/*"]}))
        done = subprocess.run([node, COMPILER, "-p", "."], cwd=copy, capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr, end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

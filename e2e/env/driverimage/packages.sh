#!/usr/bin/env bash
# Makes the parts of the driver images of Debian 12 from Debian's archive, without installing anything on this machine: packages.sh FOLDER
# FOLDER gets the userland of precompiled images (run) and of images that compile (build), the sources of the modules by release (sources), and the
# release of the newest cloud kernel of Debian 12 (kernel). A part is complete when it names what it has.
set -euo pipefail
folder=${1:?name the folder}
# shellcheck source=../debian/archive.sh
. "${BASH_SOURCE[0]%/*}/../debian/archive.sh"

# nvidia-persistenced needs libtirpc, the objtool of the kernel's headers libelf.
declare -A userlands=([run]="kmod mount libtirpc3" [build]="kmod mount libtirpc3 apt ca-certificates make gcc libelf1")
command -v mmdebstrap >/dev/null || { echo "packages.sh: install the package mmdebstrap" >&2; exit 1; }
for name in run build; do
	root=$folder/$name
	[ "$(cat "$root.complete" 2>/dev/null)" != "${userlands[$name]}" ] || continue
	echo "downloading the userland of driver images ($name), about 100 MB, once"
	rm -rf "$root"
	mkdir -p "$folder"
	suites bookworm main | SOURCE_DATE_EPOCH=0 mmdebstrap --quiet --mode=root --variant=essential --include="${userlands[$name]}" \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' bookworm "$root" -
	echo "${userlands[$name]}" >"$root.complete"
done

sources="nvidia-kernel-dkms nvidia-open-kernel-dkms"
for release in bookworm trixie; do
	root=$folder/sources/$release
	[ "$(cat "$root/complete" 2>/dev/null)" != "$sources" ] || continue
	echo "downloading the sources of the kernel modules of $release, about 80 MB, once"
	rm -rf "$root"
	configure_apt "$root/apt" < <(suite "$release" contrib non-free)
	read -ra names <<<"$sources"
	unpack "$root" "${names[@]}"
	rm -rf "$root/apt"
	echo "$sources" >"$root/complete"
done

# The metapackage depends on the headers of the newest kernel. Without the archive, that of the last run stays.
configure_apt "$folder/apt" < <(suites bookworm main) || true
newest=$(apt-cache depends linux-headers-cloud-amd64 | sed -nE 's/.*Depends: linux-headers-([0-9].*)/\1/p') || true
rm -rf "$folder/apt"
[ -z "$newest" ] || echo "$newest" >"$folder/kernel"
[ -s "$folder/kernel" ] || { echo "packages.sh: $archive has no linux-headers-cloud-amd64 for Debian 12" >&2; exit 1; }

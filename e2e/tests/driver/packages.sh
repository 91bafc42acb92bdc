#!/usr/bin/env bash
# Downloads packages of NVIDIA's driver from Debian's archive and unpacks them, without installing anything: packages.sh FOLDER
# FOLDER gets a driver root per release of Debian, and meanwhile a private configuration of apt, with the machine's archive and keyring.
set -euo pipefail
packages=(nvidia-cuda-mps libcuda1)
folder=${1:?name the folder}
archive=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -oE '^[^#]*https?://[^ ]+/debian/?( |$)' | grep -oE 'https?://[^ ]+' | head -n 1) || true
[ -n "$archive" ] || { echo "test-driver: /etc/apt names no archive of Debian" >&2; exit 1; }
for release in bookworm trixie; do
	root=$folder/$release
	[ ! -e "$root/complete" ] || continue
	rm -rf "$root"
	mkdir -p "$root"/apt/{lists,cache,empty}
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $release contrib non-free non-free-firmware" >"$root/apt/sources.list"
	: >"$root/apt/status"
	cat >"$root/apt/apt.conf" <<-CONF
		Dir::State "$root/apt"; Dir::State::status "$root/apt/status"; Dir::Cache "$root/apt/cache"; Dir::Etc::sourcelist "$root/apt/sources.list";
		Dir::Etc::sourceparts "$root/apt/empty"; Dir::Etc::preferencesparts "$root/apt/empty"; Acquire::Languages "none"; APT::Sandbox::User "root";
	CONF
	export APT_CONFIG=$root/apt/apt.conf
	apt-get -qq update
	(cd "$root/apt/cache" && apt-get -qq download "${packages[@]}")
	for package in "$root"/apt/cache/*.deb; do dpkg -x "$package" "$root"; done
	rm -rf "$root/apt"
	touch "$root/complete"
done

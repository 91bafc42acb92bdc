#!/usr/bin/env bash
# Downloads the packages of NVIDIA's driver from Debian's archive and unpacks them, without installing anything: packages.sh FOLDER
# FOLDER gets a driver root per release of Debian, and meanwhile a private configuration of apt, with the machine's archive and keyring.
# A root is complete when it names the packages that it has. It has the links of an installation: those that nvidia-alternative lists.
set -euo pipefail
packages=(
	libnvidia-ml1 libcuda1 nvidia-smi nvidia-persistenced nvidia-cuda-mps firmware-nvidia-gsp
	libnvidia-ptxjitcompiler1 libnvidia-nvvm4 libnvidia-cfg1 libnvidia-allocator1
	libnvidia-encode1 libnvcuvid1 libnvidia-fbc1 libnvidia-opticalflow1 nvidia-opencl-icd nvidia-opencl-common
	libegl-nvidia0 libglx-nvidia0 libgles-nvidia2 libnvidia-eglcore libnvidia-glcore libnvidia-glvkspirv libnvidia-egl-gbm1
	nvidia-egl-icd nvidia-egl-common nvidia-vulkan-icd nvidia-vulkan-common nvidia-alternative
)
declare -A also=([bookworm]="" [trixie]="libnvidia-gpucomp")
folder=${1:?name the folder}
# shellcheck source=../../env/debian/archive.sh
. "${BASH_SOURCE[0]%/*}/../../env/debian/archive.sh"

# The functions of the script of nvidia-alternative that runs after an installation: LINK NAME FILE, and FOLDER SUBFOLDER NAME FOLDER SUBFOLDER.
add_slave() {
	if [ -f "$root$3" ] && [ -d "$(dirname "$root$1")" ]; then
		ln -s "$3" "$root/etc/alternatives/nvidia--$2"
		ln -s "/etc/alternatives/nvidia--$2" "$root$1"
	fi
}
add_multiarch_slave() { add_slave "$1/x86_64-linux-gnu/$2$3" "$3-x86_64-linux-gnu" "$4/x86_64-linux-gnu/$5$3"; }

for release in bookworm trixie; do
	root=$folder/$release
	wanted="${packages[*]} ${also[$release]}"
	[ "$(cat "$root/complete" 2>/dev/null)" != "$wanted" ] || continue
	echo "downloading the driver of $release, about 130 MB, once"
	rm -rf "$root"
	configure_apt "$root/apt" < <(suite "$release" contrib non-free non-free-firmware)
	read -ra names <<<"$wanted"
	unpack "$root" "${names[@]}"
	dpkg -e "$root"/apt/cache/nvidia-alternative_*.deb "$root/apt/control"
	mkdir -p "$root/etc/alternatives"
	eval "$(sed -nE 's/^[[:space:]]*\$\((add_(multiarch_)?slave [^$()`;&|]*)\)$/\1/p' "$root/apt/control/postinst")"
	rm -rf "$root/apt"
	echo "$wanted" >"$root/complete"
done

#!/usr/bin/env bash
# Builds the disk of the lab's virtual machines: build.sh FOLDER. FOLDER gets root.ext4, boot/<release> with the kernels in it, and firmware/ with UEFI.
# The root is a minimal Debian with what a Kubernetes node needs, as its administrator installs it; containerd and kubelet are the lab's.
set -euo pipefail
folder=$1
# shellcheck source=../../debian/archive.sh
. "${BASH_SOURCE[0]%/*}/../../debian/archive.sh"
packages=(
	systemd systemd-sysv dbus udev kmod mount procps openssh-server
	iproute2 iptables nftables conntrack containernetworking-plugins runc
	linux-image-cloud-amd64 linux-image-amd64
)
include=$(IFS=,; echo "${packages[*]}")
root=$folder/root
suites bookworm main | mmdebstrap --variant=minbase --include="$include" \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' bookworm "$root" -

# Debian 12 has crun 1.8, which refuses what containerd 2 writes (OCI runtime specification 1.3). That of Debian 13 needs its own C library.
crun=/opt/crun/usr/lib/x86_64-linux-gnu
mmdebstrap --variant=extract --include=crun trixie "$root/opt/crun" "$archive"
patchelf --set-interpreter "$crun/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$crun" "$root/opt/crun/usr/bin/crun"
ln -s /opt/crun/usr/bin/crun "$root/usr/local/bin/crun"

# The kernels, and their headers without the compiler on which the packages depend: driver containers have one.
headers=(linux-kbuild-6.1)
for kernel in "$root"/boot/vmlinuz-*; do
	release=${kernel##*/vmlinuz-}
	mkdir -p "$folder/boot/$release"
	cp "$kernel" "$folder/boot/$release/vmlinuz"
	cp "$root/boot/initrd.img-$release" "$folder/boot/$release/initrd.img"
	headers+=("linux-headers-$release")
done
release=${release%-amd64}
headers+=("linux-headers-${release%-cloud}-common")
configure_apt "$folder/apt" < <(suites bookworm main)
unpack "$folder/headers" "${headers[@]}"
rm "$folder"/apt/cache/*.deb
unpack "$folder/ovmf" ovmf
mv "$folder/ovmf/usr/share/OVMF" "$folder/firmware"
rm -r "$folder/ovmf"
unset APT_CONFIG
rm -rf "$folder/apt"
# /lib is a link in the root, and in the images to which the headers are added.
cp -a "$folder/headers/lib/." "$folder/headers/usr/lib/"
rm -r "$folder/headers/lib"
cp -a "$folder/headers/." "$root/"

# A shell on the console would compete with the log. The network is configured at each boot.
for unit in serial-getty@.service getty@.service apt-daily.timer apt-daily-upgrade.timer e2scrub_reap.service; do
	ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
# The lab's machine is the second disk: an archive that has its files, and the script that starts it.
cat >"$root/etc/systemd/system/lab-boot.service" <<-UNIT
	[Unit]
	Description=Unpack and start what the lab has put on the second disk
	[Service]
	Type=oneshot
	ExecStart=tar --extract --file /dev/vdb --directory / --no-same-owner
	ExecStart=sh /opt/tessera-lab/boot.sh
	[Install]
	WantedBy=multi-user.target
UNIT
ln -s ../lab-boot.service "$root/etc/systemd/system/multi-user.target.wants/lab-boot.service"

mkfs.ext4 -q -F -L lab -d "$root" -E lazy_itable_init=1 "$folder/root.ext4" 8G
rm -rf "$root"

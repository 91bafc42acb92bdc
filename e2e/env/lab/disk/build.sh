# Builds the disk of the lab's virtual machines: build.sh FOLDER. FOLDER gets root.ext4, and boot/<release> with the kernels in it.
# The root is a minimal Debian with what a Kubernetes node needs, as its administrator installs it; containerd and kubelet are the lab's.
set -euo pipefail
folder=$1
archive=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -oE 'https?://[^ ]+/debian/?( |$)' | grep -oE 'https?://[^ ]+' | head -n 1) || true
[ -n "$archive" ] || { echo "/etc/apt names no archive of Debian" >&2; exit 1; }
packages=(
	systemd systemd-sysv dbus udev kmod mount procps openssh-server
	iproute2 iptables nftables conntrack containernetworking-plugins runc
	linux-image-cloud-amd64 linux-image-amd64
)
include=$(IFS=,; echo "${packages[*]}")
mmdebstrap --variant=minbase --include="$include" --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	bookworm "$folder/root" "$archive"
root=$folder/root

# Debian 12 has crun 1.8, which refuses what containerd 2 writes (OCI runtime specification 1.3). That of Debian 13 needs its own C library.
crun=/opt/crun/usr/lib/x86_64-linux-gnu
mmdebstrap --variant=extract --include=crun trixie "$root/opt/crun" "$archive"
patchelf --set-interpreter "$crun/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$crun" "$root/opt/crun/usr/bin/crun"
ln -s /opt/crun/usr/bin/crun "$root/usr/local/bin/crun"

for kernel in "$root"/boot/vmlinuz-*; do
	release=${kernel##*/vmlinuz-}
	mkdir -p "$folder/boot/$release"
	cp "$kernel" "$folder/boot/$release/vmlinuz"
	cp "$root/boot/initrd.img-$release" "$folder/boot/$release/initrd.img"
done
# A shell on the console would compete with the log. The network is configured at each boot.
ln -sf /dev/null "$root/etc/systemd/system/serial-getty@.service"
ln -sf /dev/null "$root/etc/systemd/system/getty@.service"
ln -sf /dev/null "$root/etc/systemd/system/apt-daily.timer"
ln -sf /dev/null "$root/etc/systemd/system/apt-daily-upgrade.timer"
ln -sf /dev/null "$root/etc/systemd/system/e2scrub_reap.service"
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
rm -f "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*_*

mkfs.ext4 -q -F -L lab -d "$root" -E lazy_itable_init=1 "$folder/root.ext4" 8G
rm -rf "$root"

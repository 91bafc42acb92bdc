# Functions of scripts that download packages of Debian without installing them on this machine. Scripts source this file.
# archives END lists the archives in the machine's configuration whose address ends so.
archives() {
	cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -oE "^[^#]*https?://[^ ]+/$1/?( |\$)" | grep -oE 'https?://[^ ]*[^ /]' || true
}
archive=$(archives debian | head -n 1)
[ -n "$archive" ] || { echo "${0##*/}: /etc/apt names no archive of Debian" >&2; exit 1; }

key=/usr/share/keyrings/debian-archive-keyring.gpg

# suite RELEASE COMPONENTS...: the line of sources.list of a release.
suite() { echo "deb [signed-by=$key] $archive $*"; }

# suites RELEASE COMPONENTS...: that line, and the one of the security updates if the machine's configuration has their archive.
suites() {
	local release=$1 security
	suite "$@"
	shift
	security=$(archives debian-security | head -n 1)
	[ -z "$security" ] || echo "deb [signed-by=$key] $security $release-security $*"
}

# configure_apt FOLDER: from here on, apt has a private configuration and state in FOLDER, with the sources.list on standard input.
configure_apt() {
	local folder=$1
	rm -rf "$folder"
	mkdir -p "$folder"/{lists,cache,empty}
	cat >"$folder/sources.list"
	: >"$folder/status"
	cat >"$folder/apt.conf" <<-CONF
		Dir::State "$folder"; Dir::State::status "$folder/status"; Dir::Cache "$folder/cache"; Dir::Etc::sourcelist "$folder/sources.list";
		Dir::Etc::sourceparts "$folder/empty"; Dir::Etc::preferencesparts "$folder/empty"; Acquire::Languages "none"; APT::Sandbox::User "root";
	CONF
	export APT_CONFIG=$folder/apt.conf
	apt-get -qq update
}

# unpack ROOT PACKAGES...: downloads packages into apt's cache and unpacks them below ROOT.
unpack() {
	local root=$1 package
	shift
	(cd "${APT_CONFIG%/*}/cache" && apt-get -qq download "$@")
	for package in "${APT_CONFIG%/*}"/cache/*.deb; do dpkg -x "$package" "$root"; done
}

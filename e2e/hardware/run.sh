#!/bin/sh
# Records how the GPUs of this machine, its driver and the node agent behave. It changes no setting of a GPU: no mode, no reset, no MIG device. Root.
#
#   run.sh [driver root]      the root of the driver's files is / unless given; PROC_ROOT, SYS_ROOT and DEV_ROOT name those of a fake machine
#
# Each step is limited in time, and its output is a file in results/, with exit status and duration in results/steps.tsv. What fails is a result too.
set -u
cd "$(dirname "$0")" || exit 1
here=$PWD
root=${1:-/}
library=$(find "$root" -maxdepth 5 -name libnvidia-ml.so.1 2>/dev/null | head -n 1)
[ -n "$library" ] || { echo "no libnvidia-ml.so.1 below $root: name the root of the driver's files" >&2; exit 2; }
programs=$PATH:${root%/}/bin:${root%/}/usr/bin
LD_LIBRARY_PATH=$(dirname "$library"); export LD_LIBRARY_PATH
PATH=$here/bin:$programs; export PATH
driver=; [ "$root" = / ] || driver=$root
probe="agentprobe --driver-root=$driver --dev-root=${DEV_ROOT:-/} --proc-root=${PROC_ROOT:-/proc} --sys-root=${SYS_ROOT:-/sys}"
printf 'apiVersion: tessera.dev/v1alpha1\nkind: NodeConfig\nroots: {host: /, proc: %s, sys: %s, driver: "%s", dev: %s}\n' "${PROC_ROOT:-/proc}" "${SYS_ROOT:-/sys}" "$driver" "${DEV_ROOT:-/}" >node.yaml
mkdir -p results

# step NAME SECONDS COMMAND... runs a command and keeps its output.
step() {
	name=$1 limit=$2; shift 2
	began=$(date +%s%N)
	timeout -k 2 "$limit" "$@" >"results/$name" 2>"results/$name.err" </dev/null
	status=$?
	[ -s "results/$name.err" ] || rm -f "results/$name.err"
	printf '%s\t%d\t%d ms\n' "$name" $status $((($(date +%s%N) - began) / 1000000)) | tee -a results/steps.tsv
}

# --- the machine
step machine.txt 20 sh -c 'uname -a; id; cat /proc/version /proc/devices /proc/mounts /proc/self/cgroup; grep -i nvidia /proc/modules; cat /sys/module/nvidia*/version; ls -l /sys/module | grep -i nvidia'
step nodes.txt 20 sh -c 'ls -lR /dev/nvidia* /dev/dri /dev/char 2>&1'
step proc.txt 20 sh -c 'find /proc/driver/nvidia* -type f | sort | while read -r file; do echo "== $file"; head -c 20000 "$file"; done'
step pci.txt 20 sh -c 'for d in /sys/bus/pci/devices/*; do [ "$(cat "$d/vendor")" = 0x10de ] || continue; echo "== $d -> $(readlink -f "$d")"; ls "$d"; for a in vendor device class revision subsystem_vendor subsystem_device numa_node local_cpulist current_link_speed max_link_width reset_method d3cold_allowed resource; do echo "$a: $(cat "$d/$a" 2>&1)"; done; readlink -f "$d/driver" "$d/iommu_group"; done'
step files.txt 20 sh -c "find '$root' -xdev -maxdepth 6 \\( -path /proc -o -path /sys \\) -prune -o \\( -iname '*nvidia*' -o -name 'libcuda*' -o -name 'libnv*' -o -path '*/nvidia/*' \\) -ls | head -n 3000"
step ldcache.txt 20 sh -c 'ldconfig -p | grep -i -e nvidia -e libcuda -e libnv'

# --- the driver's programs
for args in -L -q '-q -x' 'topo -m' 'nvlink -s' 'nvlink -c' 'compute-policy -l' 'mig -lgip' 'mig -lgipp' 'mig -lgi' 'mig -lci' '-h' 'compute-policy -h' 'mig -h' \
	'--query-gpu=index,uuid,name,pci.bus_id,mig.mode.current,mig.mode.pending,persistence_mode,compute_mode,memory.total,memory.used,fabric.state,fabric.status --format=csv' \
	'--query-compute-apps=pid,used_memory --format=csv' '-i 7 -q'; do
	# shellcheck disable=SC2086
	step "smi$(printf %s "$args" | tr -c 'A-Za-z0-9-' _ | cut -c 1-40).txt" 30 nvidia-smi $args
done

# --- NVML, call by call, and as the agent uses it
step calls.json 120 nvmlprobe --library "$library" --functions functions.txt
step gatherinfo.json 30 tessera-node gatherinfo --config node.yaml
# shellcheck disable=SC2086
step look.json 30 $probe look --for 10s
cudaclient libcuda.so.1 load=14 >results/load.txt 2>&1 &
load=$!
# shellcheck disable=SC2086
step look-load.json 30 $probe look --for 10s
step calls-load.json 120 nvmlprobe --library "$library"
kill $load 2>/dev/null; wait $load 2>/dev/null

# --- CUDA, and the XID of a kernel that writes outside of its memory
for verb in add memory fill allocate=1024 allocate=1000000 copy unknown-instruction undeclared-register wrong-type no-version newer-version newer-target no-function outside; do
	step "cuda-$verb.txt" 30 cudaclient libcuda.so.1 $verb
done
mkfifo held
cudaclient libcuda.so.1 hold <held >results/held.txt 2>&1 &
client=$!
exec 9>held
step holding.txt 20 sh -c 'until grep -q holding results/held.txt || ! kill -0 "$1" 2>/dev/null; do sleep .05; done; cat results/held.txt' sh $client
step calls-held.json 120 nvmlprobe --library "$library"
step calls-other-pid-namespace.json 120 unshare --pid --fork --mount-proc nvmlprobe --library "$library"
step smi-held.txt 20 nvidia-smi
exec 9>&-
wait $client
step validate.txt 60 tessera-node validate
# shellcheck disable=SC2086
step xid.json 60 $probe events --for 40s -- cudaclient libcuda.so.1 outside
step kernel-log.txt 10 sh -c 'dmesg | grep -i -e nvrm -e nvidia -e xid | tail -n 200'

# --- the MPS control daemon
# send COMMAND... gives the daemon one command after the other, and writes the answers to one file.
send() {
	for command; do
		step answer 30 sh -c 'printf "%s\n" "$1" | nvidia-cuda-mps-control; echo "[status $?]"' sh "$command"
		{ printf '> %s\n' "$command"; cat results/answer results/answer.err 2>/dev/null; } >>"results/mps-$mode-words.txt"
	done
}
# client NAME VERB runs a CUDA program as client of the daemon.
client() { step "mps-$mode-client-$1.txt" 30 cudaclient libcuda.so.1 "$2"; }
# daemon NAME ARGUMENTS... runs a daemon and sends it every command.
daemon() {
	mode=$1; shift
	CUDA_MPS_PIPE_DIRECTORY=$here/mps-$mode/pipe CUDA_MPS_LOG_DIRECTORY=$here/mps-$mode/log
	export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
	mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
	nvidia-cuda-mps-control "$@" >"results/mps-$mode-daemon.txt" 2>&1 &
	daemon=$!
	step "mps-$mode-started.txt" 10 sh -c 'until [ -S "$CUDA_MPS_PIPE_DIRECTORY/control" ] || ! kill -0 "$1" 2>/dev/null; do sleep .05; done; ls -la "$CUDA_MPS_PIPE_DIRECTORY"' sh $daemon
	send get_server_list get_default_active_thread_percentage 'get_default_device_pinned_mem_limit 0'
	for limit in 512M 1536M 2048 2097152K 1.5G 0 x 2147483648B 2G; do
		send "set_default_device_pinned_mem_limit 0 $limit" 'get_default_device_pinned_mem_limit 0'
	done
	send 'set_default_device_pinned_mem_limit x 1G' 'set_default_device_pinned_mem_limit 7 1G' 'get_default_device_pinned_mem_limit 7' \
		'set_default_active_thread_percentage 50' 'set_default_active_thread_percentage 0' 'set_default_active_thread_percentage 150' 'set_default_active_thread_percentage x' \
		'set_default_active_thread_percentage 33.3' get_default_active_thread_percentage 'set_default_client_priority 1' get_default_client_priority \
		'start_server -uid 0' get_server_list 'start_server -uid 0' get_server_list 'start_server -uid 1000' 'start_server 0' ps 'get_server_status 12345' \
		'set_active_thread_percentage 12345 30' 'get_client_list 12345' device_query help nonsense '' get_server_status 'get_server_status 1 2'
	server=$(printf 'get_server_list\n' | timeout 10 nvidia-cuda-mps-control | head -n 1)
	client 2G-memory memory
	client 2G-allocate-1G allocate=1024
	client 2G-allocate-3G allocate=3072
	CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G client own-1G-allocate-1500M allocate=1500
	CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4G client own-4G-allocate-3G allocate=3072
	CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10 client 10-percent add
	send "set_device_pinned_mem_limit $server 0 1536M" "get_device_pinned_mem_limit $server 0"
	client 1536M-allocate-1100M allocate=1100
	client 1536M-allocate-1600M allocate=1600
	client outside outside
	send get_server_list "get_server_status $server"
	server=$(printf 'get_server_list\n' | timeout 10 nvidia-cuda-mps-control | head -n 1)
	client after-a-fault add
	step "mps-$mode-client-of-another-user.txt" 10 setpriv --reuid 1000 --regid 1000 --clear-groups cudaclient libcuda.so.1 add
	send get_server_list
	mkfifo "held-$mode"
	cudaclient libcuda.so.1 hold <"held-$mode" >"results/mps-$mode-held.txt" 2>&1 &
	client=$!
	exec 9>"held-$mode"
	step "mps-$mode-holding.txt" 20 sh -c 'until grep -q holding "$1" || ! kill -0 "$2" 2>/dev/null; do sleep .05; done; cat "$1"' sh "results/mps-$mode-held.txt" $client
	send ps "get_client_list $server" get_device_client_list "get_active_thread_percentage $server" "set_active_thread_percentage $server 30" "terminate_client $server 1" \
		"terminate_client $server $client" ps
	step "mps-$mode-smi.txt" 20 nvidia-smi
	step "mps-$mode-calls.json" 120 nvmlprobe --library "$library"
	exec 9>&-
	wait $client; echo "[status $?]" >>"results/mps-$mode-held.txt"
	step "mps-$mode-processes.txt" 10 sh -c 'ps -ef | grep -i -e mps -e cudaclient | grep -v grep'
	send quit
	step "mps-$mode-ended.txt" 20 sh -c 'while kill -0 "$1" 2>/dev/null; do sleep .05; done; ls -la "$CUDA_MPS_PIPE_DIRECTORY"' sh $daemon
	kill $daemon 2>/dev/null; wait $daemon 2>/dev/null; echo "[status $?]" >>"results/mps-$mode-daemon.txt"
	unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}
# supervised runs a daemon as the agent does, limited to 2 GiB and 40 %.
supervised() {
	uuid=$(nvidia-smi --query-gpu=uuid --format=csv,noheader -i 0)
	mkdir -p supervised/daemon
	printf '{"name":"daemon","gpu":"gpu","visible":"%s","activeThreadPercentage":40,"pinnedMemoryBytes":2147483648}' "$uuid" >supervised/daemon/config.json
	POD_UID=pod timeout 60 unshare -m tessera-node mps --config node.yaml --dir "$here/supervised" --name daemon >results/supervisor.txt 2>&1 &
	supervisor=$!
	step supervisor-serves.txt 30 sh -c 'until grep -qs "\"serving\": true" "$1"; do sleep .05; done; ls -la "$(dirname "$1")"/*' sh supervised/daemon/state.json
	CUDA_MPS_PIPE_DIRECTORY=$here/supervised/daemon/pipe; export CUDA_MPS_PIPE_DIRECTORY
	mode=supervised
	client allocate-1G allocate=1024
	client allocate-3G allocate=3072
	send get_server_list get_default_active_thread_percentage 'get_default_device_pinned_mem_limit 0' ps
	kill -9 "$(printf 'get_server_list\n' | timeout 10 nvidia-cuda-mps-control | head -n 1)"
	client after-the-server-was-killed allocate=1024
	send get_server_list
	unset CUDA_MPS_PIPE_DIRECTORY
	cat supervised/daemon/state.json >results/supervisor-state.json
	kill $supervisor; wait $supervisor; echo "[status $?]" >>results/supervisor.txt
	cat supervised/daemon/state.json >>results/supervisor-state.json
}
# words LINE... runs the program with the words of each line, and writes the answers to one file.
words() {
	for line; do
		# shellcheck disable=SC2086
		step answer 30 nvidia-cuda-mps-control $line
		{ printf '> %s\n' "$line"; cat results/answer results/answer.err 2>/dev/null; tail -n 1 results/steps.tsv; } >>results/mps-v3-words.txt
	done
}
# namespaced NAME NAMESPACE VERB runs a CUDA program as client of a namespace.
namespaced() { CUDA_MPS_PIPE_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY/$2 step "mps-v3-client-$1.txt" 30 cudaclient libcuda.so.1 "$3"; }
# version3 starts a daemon of MPS version 3.
version3() {
	nvidia-cuda-mps-control -f -m >>results/mps-v3-daemon.txt 2>&1 &
	daemon=$!
	step mps-v3-started.txt 10 sh -c 'until [ -S "$CUDA_MPS_PIPE_DIRECTORY/control" ] || ! kill -0 "$1" 2>/dev/null; do sleep .05; done' sh $daemon
	words "server create gpu --uid=0 --allowed-devices=$uuid" 'namespace create c_1 --server=gpu'
	ls -lRai "$CUDA_MPS_PIPE_DIRECTORY" >>results/mps-v3-folders.txt 2>&1
}
# namespaces has what Tessera relies on in MPS version 3 and NVIDIA's pages do not state: the forms of answers, the folders, and what outlives the daemon.
namespaces() {
	uuid=$(nvidia-smi --query-gpu=uuid --format=csv,noheader -i 0)
	CUDA_MPS_PIPE_DIRECTORY=$here/mps-v3/pipe CUDA_MPS_LOG_DIRECTORY=$here/mps-v3/log CUDA_MPS_PROTOCOL_VERSION=3
	export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY CUDA_MPS_PROTOCOL_VERSION
	mkdir -p "$CUDA_MPS_PIPE_DIRECTORY/claims/c_1" "$CUDA_MPS_LOG_DIRECTORY"
	version3
	words 'server list' 'server list --format=csv' 'server get gpu status' 'namespace list --server=gpu' 'namespace list --server=gpu --format=csv' \
		'namespace set c_1 --server=gpu --active-thread-percentage=25 --pinned-memory-limit=1536M' 'namespace list --server=gpu --format=csv' \
		'namespace get c_1 gpu pinned-memory-limit' 'namespace get c_1 gpu active-thread-percentage' 'namespace get c_1 gpu pipe-directory' \
		'server set gpu --active-thread-percentage=1 --pinned-memory-limit=1M' 'namespace create c_1 --server=gpu' 'namespace create C-1 --server=gpu' \
		'server create lost --uid=0 --allowed-devices=GPU-00000000-0000-0000-0000-000000000000' 'server list --format=csv' 'nonsense' 'feature describe'
	namespaced memory gpu/c_1 memory
	namespaced share gpu/c_1 share
	namespaced 1G gpu/c_1 allocate=1024
	namespaced 2G gpu/c_1 allocate=2048
	namespaced default gpu/default memory
	namespaced stray . memory
	CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100 namespaced own-percentage gpu/c_1 share
	CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=7=1G namespaced unseen-gpu gpu/c_1 allocate=2048
	ln "$CUDA_MPS_PIPE_DIRECTORY/gpu/c_1/control" "$CUDA_MPS_PIPE_DIRECTORY/claims/c_1/control"
	namespaced hard-link claims/c_1 share
	mkfifo held-v3
	CUDA_MPS_PIPE_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY/claims/c_1 cudaclient libcuda.so.1 hold <held-v3 >results/mps-v3-held.txt 2>&1 &
	client=$!
	exec 9>held-v3
	step mps-v3-holding.txt 20 sh -c 'until grep -q holding results/mps-v3-held.txt || ! kill -0 "$1" 2>/dev/null; do sleep .05; done' sh $client
	words 'client list --all --format=csv' 'namespace delete c_1 --server=gpu' 'namespace list --server=gpu --format=csv'
	exec 9>&-
	wait $client; echo "[status $?]" >>results/mps-v3-held.txt
	kill -9 $daemon; wait $daemon
	version3 # the folders of before are there
	words '--quit'
	wait $daemon; echo "[status $?]" >>results/mps-v3-daemon.txt
	unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY CUDA_MPS_PROTOCOL_VERSION
}
step mps-help.txt 10 nvidia-cuda-mps-control -h
step mps-v3-help.txt 10 nvidia-cuda-mps-control -p 3 -h
step mps-none.txt 10 sh -c 'echo get_server_list | nvidia-cuda-mps-control; echo "[status $?]"'
daemon foreground -f
daemon multiuser -f -multiuser-server
supervised
grep -q namespace results/mps-v3-help.txt && namespaces

# --- limits of GPU memory by control group: queries only
step limits.txt 30 sh -c 'stat -fc %T /sys/fs/cgroup; own=$(sed -n s/^0:://p /proc/self/cgroup); cat /sys/fs/cgroup/cgroup.controllers /sys/fs/cgroup/dmem.capacity "/sys/fs/cgroup$own/cgroup.controllers"
	ls "/sys/fs/cgroup$own"; nvidia-smi memory-limits -h; for group in /sys/fs/cgroup "/sys/fs/cgroup$own" /nonexistent; do nvidia-smi memory-limits --get -n "$group" -i 0; echo "[status $?]"; done'

# --- a claim, from the agent's program to a container that has only what its CDI spec names
# shellcheck disable=SC2086
step claim-cuda.json 120 $probe claim --programs "$here/bin" --rootfs "$here/rootfs" --out results -- /bin/cudaclient libcuda.so.1 add
# shellcheck disable=SC2086
step claim-smi.json 120 $probe claim --programs "$here/bin" --rootfs "$here/rootfs" --out results -- /bin/nvidia-smi
# shellcheck disable=SC2086
step claim-validate.json 120 $probe claim --programs "$here/bin" --rootfs "$here/rootfs" --out results -- /bin/tessera-node validate
step oracle.txt 60 oracle.test -test.v -test.run '^TestThisMachine$' -driver-root "$root"
step machine-after.txt 20 sh -c 'nvidia-smi -q; cat /proc/devices; ls -lR /dev/nvidia*'
tar -czf results.tar.gz results

package expect

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	gpuA = `{"uuid":"GPU-a","name":"NVIDIA H100 80GB HBM3","memoryMiB":81559,"mig":false,"instances":[]}`
	gpuB = `{"uuid":"GPU-b","name":"NVIDIA H100 80GB HBM3","memoryMiB":81559,"mig":false,"instances":[]}`
)

// slice is what the probe prints for a GPU in MIG mode with the instances.
func slice(parent string, instances ...string) string {
	return fmt.Sprintf(`{"uuid":%q,"name":"NVIDIA H100 80GB HBM3","memoryMiB":81559,"mig":true,"instances":[%s]}`, parent, strings.Join(instances, ","))
}

func instance(uuid, profile string, memory, multiprocessors int) string {
	return fmt.Sprintf(`{"uuid":%q,"name":"NVIDIA H100 80GB HBM3 MIG %s","memoryMiB":%d,"multiprocessors":%d,"gpuInstance":1,"computeInstance":0}`,
		uuid, profile, memory, multiprocessors)
}

// list is what nvidia-smi -L prints for a GPU with MIG devices of the profiles, which are named MIG-1, MIG-2, ….
func list(uuid string, profiles ...string) string {
	text := fmt.Sprintf("GPU 0: NVIDIA H100 80GB HBM3 (UUID: %s)\n", uuid)
	for i, profile := range profiles {
		text += fmt.Sprintf("  MIG %-11s Device %2d: (UUID: MIG-%d)\n", profile, i, i+1)
	}
	return text
}

func report(gpus ...string) string {
	return `{"gpus":[` + strings.Join(gpus, ",") + `],"cuda":1}` + "\n"
}

func wholeGrant(device, uuid string, attributes ...string) Grant {
	g := Grant{Node: "node1", Driver: "d", Pool: "p", Device: device, Shape: "gpu", UUID: uuid, Attributes: map[string]string{}}
	for i := 0; i+1 < len(attributes); i += 2 {
		g.Attributes[attributes[i]] = attributes[i+1]
	}
	return g
}

func migGrant(device, parent, profile string, multiprocessors int64) Grant {
	return Grant{Node: "node1", Driver: "d", Pool: "p", Device: device, Shape: "mig", Parent: parent, Profile: profile, Multiprocessors: multiprocessors}
}

func shareGrant(shape, uuid, id string, share Share) Grant {
	return Grant{Node: "node1", Driver: "d", Pool: "p", Device: "a-" + shape, ShareID: id, Share: share, Shape: shape, UUID: uuid}
}

func usage(allocated, free, multiprocessors, refused int) string {
	return fmt.Sprintf(`{"devices":[{"uuid":"GPU-a","totalMiB":81559,"freeMiB":%d,"multiprocessors":%d}],"allocatedMiB":%d,"refused":%d}`+"\n",
		free, multiprocessors, allocated, refused)
}

func pod(name string, containers ...Container) Pod {
	return Pod{Name: name, Node: "node1", Containers: containers}
}

func TestCompare(t *testing.T) {
	a := Container{Name: "main", Log: report(gpuA), Grants: []Grant{wholeGrant("a", "GPU-a")}}
	b := Container{Name: "main", Log: report(gpuB), Grants: []Grant{wholeGrant("b", "GPU-b")}}
	second := Container{Name: "second", Log: report(gpuA), Grants: []Grant{wholeGrant("a", "GPU-a")}}
	small := Container{Name: "main", Log: report(slice("GPU-a", instance("MIG-1", "1g.10gb", 9984, 16))), Grants: []Grant{migGrant("a-19-0", "GPU-a", "1g.10gb", 16)}}
	listed := Container{Name: "main", Log: list("GPU-a", "1g.10gb"), Grants: []Grant{migGrant("a-19-0", "GPU-a", "1g.10gb", 16)}}
	listed.Grants[0].Memory = 9984 << 20
	half := Share{Memory: 4 << 30, Compute: 50}
	client := func(line string) Pod {
		return pod("x", Container{Name: "main", Log: report(gpuA) + line, Grants: []Grant{shareGrant("mps", "GPU-a", "1", half)}})
	}
	carved := report(slice("GPU-a", instance("MIG-1", "1g.10gb", 9984, 16)), gpuB)
	watcher := pod("x", Container{Name: "main", Log: carved, Grants: []Grant{shareGrant("monitor", "GPU-a", "", Share{}), shareGrant("monitor", "GPU-b", "", Share{})}})
	at := func(p Pod, began, ended int64) Pod {
		p.Began = time.Unix(began, 0)
		if ended > 0 {
			p.Ended = time.Unix(ended, 0)
		}
		return p
	}
	const island = "gpu.tessera.dev/linkIsland"

	tests := map[string]struct {
		expect string
		phase  Phase
		reason string
		pods   []Pod
		others []Outcome
		want   []string
	}{
		"a whole GPU": {expect: "gpus: 1", pods: []Pod{pod("x", a)}},
		"another phase": {
			expect: "gpus: 1", phase: Failed, reason: "container main: Error with exit code 1",
			pods: []Pod{pod("x", Container{Name: "main", Log: "oops\n"})},
			want: []string{`expected Succeeded, is Failed: container main: Error with exit code 1 (x, container main, says "oops")`},
		},
		"still pending": {
			expect: "gpus: 1", phase: Pending, reason: "0/2 nodes are available",
			want: []string{"expected Succeeded, is Pending: 0/2 nodes are available"},
		},
		"stays pending": {expect: "phase: Pending\nreason: cannot allocate", phase: Pending, reason: "0/2 nodes: 2 cannot allocate all claims"},
		"pending, another reason": {
			expect: "phase: Pending\nreason: cannot allocate", phase: Pending, reason: "untolerated taint",
			want: []string{`expected to be Pending because "cannot allocate", the reason is "untolerated taint"`},
		},
		"too few": {
			expect: "gpus: 2", pods: []Pod{pod("x", a)},
			want: []string{"x, container main: expected to see 2 whole GPUs, sees 1"},
		},
		"no report": {
			expect: "gpus: 1", pods: []Pod{pod("x", Container{Name: "main", Log: "open libnvidia-ml.so.1: no such file\n"})},
			want: []string{`x, container main: no list of devices in the log, it says "open libnvidia-ml.so.1: no such file"`},
		},
		"a GPU too many is never fine": {
			expect: "log: uuid", pods: []Pod{pod("x", Container{Name: "main", Log: report(gpuA, gpuB), Grants: a.Grants})},
			want: []string{"x, container main: sees NVIDIA H100 80GB HBM3, 81559 MiB, GPU-b, was not given it"},
		},
		"another GPU than given": {
			expect: "gpus: 1", pods: []Pod{pod("x", Container{Name: "main", Log: report(gpuB), Grants: a.Grants})},
			want: []string{
				"x, container main: was given p/a (GPU-a), does not see it",
				"x, container main: sees NVIDIA H100 80GB HBM3, 81559 MiB, GPU-b, was not given it",
			},
		},
		"a MIG device":    {expect: "mig: [1g.10gb]", pods: []Pod{pod("x", small)}},
		"any MIG device":  {expect: "mig: ['*']\nmemory: 9Gi", pods: []Pod{pod("x", small)}},
		"whole is no MIG": {expect: "mig: [1g.10gb]", pods: []Pod{pod("x", a)}, want: []string{"x, container main: expected to see 0 whole GPUs, sees 1", `x, container main: expected to see MIG devices ["1g.10gb"], sees []`}},
		"too small": {
			expect: "mig: ['*']\nmemory: 19Gi", pods: []Pod{pod("x", small)},
			want: []string{"x, container main: expected devices with at least 19Gi, sees NVIDIA H100 80GB HBM3 MIG 1g.10gb, 16 SM, 9984 MiB, MIG-1"},
		},
		"fewer SMs than given": {
			expect: "mig: [1g.10gb]", pods: []Pod{pod("x", Container{Name: "main", Log: small.Log, Grants: []Grant{migGrant("a-15-0", "GPU-a", "1g.10gb", 26)}})},
			want: []string{
				"x, container main: was given p/a-15-0 (1g.10gb with 26 SM on GPU-a), does not see it",
				"x, container main: sees NVIDIA H100 80GB HBM3 MIG 1g.10gb, 16 SM, 9984 MiB, MIG-1, was not given it",
			},
		},
		"a list": {expect: "mig: [1g.10gb]\nmemory: 9Gi", pods: []Pod{pod("x", listed)}},
		"too small, from the ResourceSlice": {
			expect: "mig: [1g.10gb]\nmemory: 19Gi", pods: []Pod{pod("x", listed)},
			want: []string{"x, container main: expected devices with at least 19Gi, sees NVIDIA H100 80GB HBM3 MIG 1g.10gb, 9984 MiB, MIG-1"},
		},
		"a listed GPU too many is never fine": {
			expect: "log: UUID", pods: []Pod{pod("x", Container{Name: "main", Log: list("GPU-a") + list("GPU-b"), Grants: a.Grants})},
			want: []string{"x, container main: sees NVIDIA H100 80GB HBM3, GPU-b, was not given it"},
		},
		"a log":       {expect: "log: Test PASSED", pods: []Pod{pod("x", Container{Name: "main", Log: "devices: 1\nTest PASSED\n"})}},
		"another log": {expect: "log: Test PASSED", pods: []Pod{pod("x", Container{Name: "main", Log: "Test FAILED\n"})}, want: []string{`x, container main: expected "Test PASSED" in the log, it says "Test FAILED"`}},
		"same":        {expect: "gpus: 1\ndevices: same", pods: []Pod{pod("x", a, second)}},
		"not the same": {
			expect: "gpus: 1\ndevices: same", pods: []Pod{pod("x", a), pod("y", b)},
			want: []string{"y/main sees [GPU-b], another container of the same devices [GPU-a]"},
		},
		"distinct":     {expect: "gpus: 1\ndevices: distinct", pods: []Pod{pod("x", a), pod("y", b)}},
		"not distinct": {expect: "gpus: 1\ndevices: distinct", pods: []Pod{pod("x", a, second)}, want: []string{"x/main and x/second both see GPU-a"}},
		"same as another pod": {
			expect: "gpus: 1\nsameAs: writer", pods: []Pod{pod("x", a)},
			others: []Outcome{{Subject: Subject{Name: "writer"}, Pods: []Pod{pod("writer", a)}}},
		},
		"not same as": {
			expect: "gpus: 1\nsameAs: writer", pods: []Pod{pod("x", a)},
			others: []Outcome{{Subject: Subject{Name: "writer"}, Pods: []Pod{pod("writer", b)}}},
			want:   []string{"x/main sees [GPU-a], another container of the same devices [GPU-b]"},
		},
		"same as nobody": {expect: "gpus: 1\nsameAs: writer", pods: []Pod{pod("x", a)}, want: []string{"expected the same devices as writer, which is not in the manifest"}},
		"a share":        {expect: "gpus: 1", pods: []Pod{pod("x", Container{Name: "main", Log: report(gpuA), Grants: []Grant{shareGrant("timeshare", "GPU-a", "1", half)}})}},
		"two shares of a GPU": {expect: "gpus: 1", pods: []Pod{pod("x", Container{Name: "main", Log: report(gpuA), Grants: []Grant{
			shareGrant("timeshare", "GPU-a", "1", half), shareGrant("timeshare", "GPU-a", "2", half)}})}},
		"a share of another GPU": {
			expect: "gpus: 1", pods: []Pod{pod("x", Container{Name: "main", Log: report(gpuB), Grants: []Grant{shareGrant("timeshare", "GPU-a", "1", half)}})},
			want: []string{
				"x, container main: was given p/a-timeshare (GPU-a), does not see it",
				"x, container main: sees NVIDIA H100 80GB HBM3, 81559 MiB, GPU-b, was not given it",
			},
		},
		"limits":    {expect: "gpus: 1\nallocates: 4Gi\nmultiprocessors: 66", pods: []Pod{client(usage(4096, 4096, 66, 2))}},
		"no limits": {expect: "gpus: 1\nallocates: 4Gi", pods: []Pod{client("")}, want: []string{fmt.Sprintf("x, container main: no report of the probe about its share in the log, it says %q", strings.TrimSpace(report(gpuA)))}},
		"other limits": {
			expect: "gpus: 1\nallocates: 8Gi\nmultiprocessors: 66", pods: []Pod{client(usage(4096, 4096, 132, 2))},
			want: []string{"x, container main: expected CUDA to give 8Gi, it gives 4096 MiB", "x, container main: expected CUDA to count 66 multiprocessors on GPU-a, it counts 132"},
		},
		"a limit that does not hold": {
			expect: "gpus: 1\nallocates: 4Gi", pods: []Pod{client(usage(4096, 4096, 66, 0))},
			want: []string{"x, container main: expected CUDA to give no more than 4Gi, it does"},
		},
		"more than its share is never fine": {
			expect: "gpus: 1", pods: []Pod{client(usage(8192, 8192, 66, 2))},
			want: []string{"x, container main: may allocate 8192 MiB on GPU-a, was given 4096"},
		},
		"a time slice": {expect: "timeSlice: Long", pods: []Pod{pod("x", Container{Name: "main", Grants: []Grant{{Device: "a", TimeSlice: "Long"}}})}},
		"another time slice": {
			expect: "timeSlice: Short", pods: []Pod{pod("x", Container{Name: "main", Grants: []Grant{{Pool: "p", Device: "a", TimeSlice: "Long"}}})},
			want: []string{`x, container main: expected the time slice Short on p/a, the claim's status says "Long"`},
		},
		"watches": {expect: "watches: 2", pods: []Pod{watcher}},
		"watches fewer": {
			expect: "watches: 3", pods: []Pod{watcher},
			want: []string{"x, container main: expected to watch 3 GPUs, sees 2"},
		},
		"watches another": {
			expect: "watches: 1", pods: []Pod{pod("x", Container{Name: "main", Log: carved, Grants: []Grant{shareGrant("monitor", "GPU-c", "", Share{})}})},
			want: []string{
				"x, container main: expected to watch 1 GPUs, sees 2",
				"x, container main: was given p/a-monitor (GPU-c), does not see it",
				"x, container main: sees NVIDIA H100 80GB HBM3 MIG 1g.10gb, 16 SM, 9984 MiB, MIG-1, was not given it",
				"x, container main: sees NVIDIA H100 80GB HBM3, 81559 MiB, GPU-b, was not given it",
			},
		},
		"while another runs": {
			expect: "gpus: 1\nwhile: tenant", pods: []Pod{at(pod("x", a), 105, 106)},
			others: []Outcome{{Subject: Subject{Namespace: "other", Name: "tenant"}, Pods: []Pod{at(pod("tenant", a), 100, 105)}}},
		},
		"while another goes on": {
			expect: "gpus: 1\nwhile: tenant", pods: []Pod{at(pod("x", a), 105, 106)},
			others: []Outcome{{Subject: Subject{Name: "tenant"}, Pods: []Pod{at(pod("tenant", a), 100, 0)}}},
		},
		"after another": {
			expect: "gpus: 1\nwhile: tenant", pods: []Pod{at(pod("x", a), 105, 106)},
			others: []Outcome{{Subject: Subject{Name: "tenant"}, Pods: []Pod{at(pod("tenant", a), 100, 104)}}},
			want:   []string{"x did not run while tenant did"},
		},
		"while nobody runs": {expect: "gpus: 1\nwhile: tenant", pods: []Pod{pod("x", a)}, want: []string{"expected to run while tenant does, which is not in the manifest"}},
		"refused":           {expect: "phase: Refused\nreason: exceeded quota", phase: Refused, reason: "second is forbidden: exceeded quota: one-gpu"},
		"refused, another reason": {
			expect: "phase: Refused\nreason: exceeded quota", phase: Refused, reason: "no rights",
			want: []string{`expected to be Refused because "exceeded quota", the reason is "no rights"`},
		},
		"not refused": {
			expect: "phase: Refused\nreason: exceeded quota", phase: Accepted, reason: "the API server took it",
			want: []string{"expected Refused, is Accepted: the API server took it"},
		},
		"match": {
			expect: "gpus: 1\nmatch: [" + island + "]",
			pods: []Pod{pod("x",
				Container{Name: "main", Log: a.Log, Grants: []Grant{wholeGrant("a", "GPU-a", island, "1")}},
				Container{Name: "second", Log: b.Log, Grants: []Grant{wholeGrant("b", "GPU-b", island, "1")}})},
		},
		"no match": {
			expect: "gpus: 1\nmatch: [" + island + "]",
			pods: []Pod{pod("x",
				Container{Name: "main", Log: a.Log, Grants: []Grant{wholeGrant("a", "GPU-a", island, "1")}},
				Container{Name: "second", Log: b.Log, Grants: []Grant{wholeGrant("b", "GPU-b", island, "2")}})},
			want: []string{"x: devices differ in gpu.tessera.dev/linkIsland: map[1:[a] 2:[b]]"},
		},
		"nothing to match": {
			expect: "gpus: 1\nmatch: [" + island + "]", pods: []Pod{pod("x", a)},
			want: []string{"x: device p/a has no attribute gpu.tessera.dev/linkIsland"},
		},
		"over":              {expect: "gpus: 1\nover: 2", pods: []Pod{pod("x", a), pod("y", b), pod("z", a)}},
		"over fewer":        {expect: "gpus: 1\nover: 3", pods: []Pod{pod("x", a), pod("y", b)}, want: []string{"expected the pods to take turns on 3 devices, they used 2"}},
		"a container named": {expect: "containers: {main: {gpus: 1}}", pods: []Pod{pod("x", a)}},
		"no such container": {expect: "containers: {side: {gpus: 1}}", pods: []Pod{pod("x", a)}, want: []string{"x: no container side"}},
		"no pod":            {expect: "gpus: 1", want: []string{"no pod was found"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e, err := Parse(test.expect)
			if err != nil {
				t.Fatal(err)
			}
			o := Outcome{Subject: Subject{Kind: "Pod", Name: "x", Expectation: e}, Phase: test.phase, Explanation: test.reason, Pods: test.pods}
			if o.Phase == "" {
				o.Phase = Succeeded
			}
			if diff := cmp.Diff(test.want, Compare(o, test.others)); diff != "" {
				t.Errorf("complaints (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMatchAll(t *testing.T) {
	tests := []struct {
		patterns, names []string
		want            bool
	}{
		{nil, nil, true},
		{[]string{"*"}, nil, false},
		{nil, []string{"1g.10gb"}, false},
		{[]string{"*", "1g.10gb"}, []string{"1g.10gb", "2g.20gb"}, true},
		{[]string{"1g.*", "1g.10gb"}, []string{"1g.10gb", "1g.10gb+me"}, true},
		{[]string{"1g.10gb", "1g.10gb"}, []string{"1g.10gb"}, false},
		{[]string{"1g.10gb"}, []string{"1g.10gb+me"}, false},
	}
	for _, test := range tests {
		if got := matchAll(test.patterns, test.names); got != test.want {
			t.Errorf("matchAll(%q, %q) = %t", test.patterns, test.names, got)
		}
	}
}

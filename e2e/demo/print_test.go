package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

const twoGPUs = `{"gpus":[{"uuid":"GPU-b","name":"H100","memoryMiB":81559,"mig":false,"instances":[]},` +
	`{"uuid":"GPU-a","name":"H100","memoryMiB":81559,"mig":true,"instances":[` +
	`{"uuid":"MIG-1","name":"H100 MIG 1g.10gb","memoryMiB":9984,"multiprocessors":16,"gpuInstance":9,"computeInstance":0}]}],"cuda":1}`

const (
	oneGPU = `{"gpus":[{"uuid":"GPU-b","name":"H100","memoryMiB":81559,"mig":false,"instances":[]}],"cuda":1}` + "\n"
	share  = `{"devices":[{"uuid":"GPU-b","totalMiB":81559,"freeMiB":4096,"multiprocessors":66}],"allocatedMiB":4096,"refused":2}` + "\n"
)

func TestPrintExample(t *testing.T) {
	slice := expect.Grant{Device: "gpu-a-mig-19-3", Shape: "mig", Parent: "GPU-a", Profile: "1g.10gb", Multiprocessors: 16}
	r := result{
		example:    expect.Example{File: "x.yaml", Title: "A title"},
		complaints: []string{"pod default/other: expected Succeeded, is Failed"},
		outcomes: []expect.Outcome{
			{Pods: []expect.Pod{{
				Name: "one", Node: "node1", Requests: []string{"slice: 1 × mig.tessera.dev"},
				Containers: []expect.Container{
					{Name: "a", Log: twoGPUs, Grants: []expect.Grant{slice}},
					{Name: "b", Log: "adding\nTest PASSED\n", Grants: []expect.Grant{slice}},
				},
			}}},
			{Pods: []expect.Pod{{Name: "other", Node: "node2", Requests: []string{"slice: 1 × mig.tessera.dev"}, Containers: []expect.Container{{Name: "c"}}}}},
			{Pods: []expect.Pod{{Name: "client", Node: "node2", Containers: []expect.Container{{Name: "c", Log: oneGPU + share, Grants: []expect.Grant{
				{Device: "gpu-b-mps", Shape: "mps", UUID: "GPU-b", ShareID: "1", Share: expect.Share{Memory: 4 << 30, Compute: 50}},
			}}}}}},
			{Pods: []expect.Pod{{Name: "watcher", Node: "node2", Containers: []expect.Container{{Name: "c", Log: twoGPUs, Grants: []expect.Grant{
				{Device: "gpu-a-monitor", Shape: "monitor", UUID: "GPU-a"}, {Device: "gpu-b-monitor", Shape: "monitor", UUID: "GPU-b"},
			}}}}}},
			{Subject: expect.Subject{Kind: "Pod", Namespace: "default", Name: "late"}, Phase: expect.Pending, Explanation: "0/2 nodes are available:\n no room"},
		},
	}
	want := `
A title (x.yaml): UNEXPECTED
  requests  slice: 1 × mig.tessera.dev
  POD      NODE   ALLOCATED             REPORTED BY CONTAINER
  one/a    node1  gpu-a-mig-19-3        H100 MIG 1g.10gb, 16 SM, 9984 MiB, MIG-1
                  -                     H100, 81559 MiB, GPU-b
  one/b    node1  gpu-a-mig-19-3        Test PASSED
  other    node2  -                     -
  client   node2  gpu-b-mps, 4Gi, 50 %  H100, 81559 MiB, GPU-b; CUDA allocates 4096 MiB, 66 SM
  watcher  node2  gpu-a-monitor         H100, 81559 MiB, GPU-a, MIG mode, MIG devices: 1
                  gpu-b-monitor         H100, 81559 MiB, GPU-b
  pod default/late is Pending: 0/2 nodes are available: no room
  UNEXPECTED: pod default/other: expected Succeeded, is Failed
`
	var got strings.Builder
	r.print(&got)
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
}

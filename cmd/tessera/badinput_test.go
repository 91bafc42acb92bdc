package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tessera-gpu/tessera/cmd/tessera/output"
	"github.com/tessera-gpu/tessera/cmd/tessera/output/outputtest"
	"github.com/tessera-gpu/tessera/cmd/tessera/version"
	"github.com/tessera-gpu/tessera/internal/capability/capabilitytest"
)

// TestHelp compares the help of every verb with a golden file. Duplicate flags panic there.
func TestHelp(t *testing.T) {
	t.Setenv("HOME", "/home/user")
	var walk func(*cobra.Command, []string)
	walk = func(cmd *cobra.Command, verbs []string) {
		outputtest.Golden(t, filepath.Join("help", strings.Join(append([]string{"tessera"}, verbs...), "-")+".txt"), tessera(t, append(verbs, "--help")...))
		for _, verb := range cmd.Commands() {
			walk(verb, append(slices.Clone(verbs), verb.Name()))
		}
	}
	walk(command("tessera"), nil)
	outputtest.Golden(t, "help/options.txt", tessera(t, "options"))
}

// tessera runs the command and returns what it writes, its error as main writes it, and its exit status.
func tessera(t *testing.T, args ...string) string {
	t.Helper()
	root := command("tessera")
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(output.Messages(&out))
	root.SetArgs(args)
	if err := root.ExecuteContext(t.Context()); err != nil {
		fmt.Fprintf(output.Messages(&out), "tessera: %v\nexit status %d\n", err, output.Status(err))
	}
	return strings.ReplaceAll(out.String(), version.ClientVersion(), "VERSION")
}

// connectedVerbs are calls of all verbs that connect to a cluster, by the names of their golden files.
func connectedVerbs() map[string][]string {
	return map[string][]string{
		"gpus": {"gpus"}, "status": {"status"}, "quota": {"quota"}, "doctor": {"doctor"}, "claims": {"claims", "-A"}, "explain": {"explain", "pod/x"}, "defrag-plan": {"defrag", "plan", "pod/x"}, "version": {"version"},
		"upgrade-plan": {"upgrade", "plan"}, "upgrade-pause": {"upgrade", "pause"}, "upgrade-resume": {"upgrade", "resume"},
		"upgrade-rollback": {"upgrade", "rollback"}, "remediation-pause": {"remediation", "pause"}, "remediation-resume": {"remediation", "resume"}, "support-bundle": {"support-bundle", "-o", "-"},
	}
}

// endingVerbs are connectedVerbs and calls with --watch, which end when the first request fails.
func endingVerbs() map[string][]string {
	calls := connectedVerbs()
	for _, verb := range []string{"gpus", "claims", "quota", "status"} {
		calls[verb+"-watch"] = append(slices.Clone(calls[verb]), "--watch")
	}
	return calls
}

// lists are the kinds of the lists that an API server without Tessera serves.
var lists = map[string]metav1.TypeMeta{
	"nodes": {APIVersion: "v1", Kind: "NodeList"}, "pods": {APIVersion: "v1", Kind: "PodList"}, "namespaces": {APIVersion: "v1", Kind: "NamespaceList"},
	"deployments": {APIVersion: "apps/v1", Kind: "DeploymentList"}, "daemonsets": {APIVersion: "apps/v1", Kind: "DaemonSetList"},
	"resourceslices":   {APIVersion: "resource.k8s.io/v1", Kind: "ResourceSliceList"},
	"resourceclaims":   {APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaimList"},
	"deviceclasses":    {APIVersion: "resource.k8s.io/v1", Kind: "DeviceClassList"},
	"devicetaintrules": {APIVersion: "resource.k8s.io/v1", Kind: "DeviceTaintRuleList"},
	"leases":           {APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"},
	"resourcequotas":   {APIVersion: "v1", Kind: "ResourceQuotaList"},
}

// serve starts an API server with discovery documents and without objects, and selects it by KUBECONFIG. A status other than 0 is its response to every
// other request. Watches of ResourceClaims send the returned events.
func serve(t *testing.T, status int) chan<- any {
	t.Helper()
	events := make(chan any)
	write := func(w http.ResponseWriter, code int, value any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(value)
	}
	mux := http.NewServeMux()
	for _, list := range capabilitytest.Kubernetes137().Lists() {
		mux.HandleFunc("/apis/"+list.GroupVersion, func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, list) })
	}
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, map[string]string{"gitVersion": "v1.37.2"})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		kind, known := lists[path.Base(r.URL.Path)]
		switch {
		case status != 0:
			write(w, status, metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(status), Reason: metav1.StatusReasonForbidden,
				Message: fmt.Sprintf("%s is forbidden: User \"u\" cannot list it", path.Base(r.URL.Path)),
			})
		case known && r.URL.Query().Get("watch") == "true":
			serveEvents(w, r, events)
		case known:
			write(w, http.StatusOK, map[string]any{"apiVersion": kind.APIVersion, "kind": kind.Kind, "metadata": map[string]string{"resourceVersion": "1"}, "items": []any{}})
		default:
			missing := metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
				Message: "the server could not find the requested resource",
			}
			if folder := path.Base(path.Dir(r.URL.Path)); lists[folder].Kind != "" {
				name := path.Base(r.URL.Path)
				missing.Message, missing.Details = fmt.Sprintf("%s %q not found", folder, name), &metav1.StatusDetails{Name: name}
			}
			write(w, http.StatusNotFound, missing)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	selectServer(t, server.URL)
	return events
}

// serveEvents responds to a watch until the client ends it: with the events if it is one of ResourceClaims.
func serveEvents(w http.ResponseWriter, r *http.Request, events <-chan any) {
	w.Header().Set("Content-Type", "application/json")
	for {
		w.(http.Flusher).Flush()
		if path.Base(r.URL.Path) != "resourceclaims" {
			events = nil
		}
		select {
		case <-r.Context().Done():
			return
		case event := <-events:
			_ = json.NewEncoder(w).Encode(event)
		}
	}
}

// selectServer selects the API server by KUBECONFIG.
func selectServer(t *testing.T, url string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.Contexts["c"], config.CurrentContext = &clientcmdapi.Cluster{Server: url}, &clientcmdapi.Context{Cluster: "c"}, "c"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	t.Setenv("HOME", t.TempDir())
}

// TestClusterWithoutTessera runs every verb on a cluster without Tessera.
func TestClusterWithoutTessera(t *testing.T) {
	serve(t, 0)
	for name, args := range connectedVerbs() {
		if name == "support-bundle" {
			continue // its output is an archive
		}
		got := tessera(t, args...)
		outputtest.Golden(t, "without-tessera/"+name+".txt", got)
	}
}

// TestNoRights runs every verb as a user without permissions. With --watch, the error is the same.
func TestNoRights(t *testing.T) {
	serve(t, http.StatusForbidden)
	for name, args := range endingVerbs() {
		if name == "support-bundle" {
			continue // it collects what it may
		}
		outputtest.Golden(t, "no-rights/"+strings.TrimSuffix(name, "-watch")+".txt", tessera(t, args...))
	}
}

// TestUnreachable runs every verb without an API server: each ends within 10 s with a reason.
func TestUnreachable(t *testing.T) {
	selectServer(t, "http://127.0.0.1:1")
	for name, args := range endingVerbs() {
		start := time.Now()
		got := tessera(t, args...)
		if !strings.Contains(got, "The API server is not reachable") || !strings.Contains(got, "exit status") || time.Since(start) > 10*time.Second {
			t.Errorf("%s after %s:\n%s", name, time.Since(start), got)
		}
	}
}

// TestWrongFlags calls verbs with wrong arguments. No request is sent.
func TestWrongFlags(t *testing.T) {
	selectServer(t, "http://127.0.0.1:1")
	for line, want := range map[string]string{
		"gpus -o xml":                             `--output "xml": must be one of text, wide, name, json, yaml, jsonpath`,
		"gpus -o jsonpath":                        "no template given",
		"gpus -o jsonpath={.items":                "unclosed action",
		"gpus -o custom-columns=NODE":             "HEADER:PATH",
		"gpus -l a=b=c":                           `--selector "a=b=c"`,
		"gpus --output-watch-events -o json":      "--output-watch-events requires --watch",
		"gpus -w --output-watch-events":           `--output-watch-events: --output "text" has no types of events`,
		"claims -w --output-watch-events -o name": `--output-watch-events: --output "name" has no types of events`,
		"quota -w -o xml":                         `--output "xml": must be one of text, wide, name, json, yaml, jsonpath`,
		"claims --watch=often":                    `invalid argument "often" for "-w, --watch" flag`,
		"status --wait --watch":                   "--wait and --watch exclude each other",
		"doctor -w":                               "unknown shorthand flag: 'w'",
		"gpus --color blue":                       `--color "blue": must be one of auto, always, never`,
		"claims -l !":                             `--selector "!"`,
		"claims --all":                            "unknown flag: --all",
		"doctor -o wide":                          `--output "wide"`,
		"explain train":                           "must be pod/NAME",
		"explain":                                 "accepts 1 arg(s)",
		"defrag plan train":                       "must be pod/NAME",
		"check":                                   "nothing to check",
		"version extra":                           "unknown command",
		"gpus --context other":                    `context "other" does not exist`,
		"gpus --kubeconfig /nonexistent":          "load the kubeconfig",
		"gpus --request-timeout soon":             "Invalid timeout value",
		"upgrade pause node/a":                    `"node/a": must be clusterpolicy/NAME or nvidiadriver/NAME or gpunode/NAME`,
		"upgrade rollback gpunode/a":              "must be clusterpolicy/NAME or nvidiadriver/NAME",
		"upgrade resume --dry-run=client":         `--dry-run "client": must be one of none, server`,
		"remediation pause nvidiadriver/a":        "must be clusterpolicy/NAME or gpunode/NAME",
		"plan upgrade":                            `unknown command "plan"`,
		"gpu":                                     `unknown command "gpu"`,
	} {
		if got := tessera(t, strings.Fields(line)...); !strings.Contains(got, want) || !strings.Contains(got, "exit status") {
			t.Errorf("%s: %s\nwant %q", line, got, want)
		}
	}
}

// TestFlagsBeforeTheVerb: flags that select the cluster are valid before and after the verb.
func TestFlagsBeforeTheVerb(t *testing.T) {
	serve(t, 0)
	for _, line := range []string{"-n demo claims", "claims -n demo", "--namespace=demo claims"} {
		if got := tessera(t, strings.Fields(line)...); got != "No claims on GPUs found in demo; -A lists all namespaces.\n" {
			t.Errorf("%s: %s", line, got)
		}
	}
}

// TestWatch watches over HTTP: a claim is added and deleted, and the interrupt ends the verb without an error.
func TestWatch(t *testing.T) {
	events := serve(t, 0)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	reader, writer := io.Pipe()
	root := command("tessera")
	root.SetOut(writer)
	root.SetErr(writer)
	root.SetArgs([]string{"claims", "-A", "-w"})
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	lines := bufio.NewScanner(reader)
	expect := func(want string) {
		t.Helper()
		if !lines.Scan() || strings.Join(strings.Fields(lines.Text()), " ") != want {
			t.Fatalf("%q, want %q", lines.Text(), want)
		}
	}
	claim := &resourceapi.ResourceClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "train", ResourceVersion: "2"},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{{Request: "gpu", Driver: "gpu.tessera.dev", Pool: "p", Device: "d"}},
		}}},
	}
	expect("No claims on GPUs found.")
	events <- map[string]any{"type": "ADDED", "object": claim}
	expect("NAMESPACE CLAIM PODS NODE DEVICES SHAPE STATE REASON")
	expect("demo train - - d - Allocated reserved for no pod")
	events <- map[string]any{"type": "DELETED", "object": claim}
	expect("Claim demo/train is no longer listed.")
	expect("No claims on GPUs found.")
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestCompletion completes arguments and flags as a shell does.
func TestCompletion(t *testing.T) {
	serve(t, 0)
	for line, want := range map[string][]string{
		"gpus --context":          {"c"},
		"gpus --cluster":          {"c"},
		"gpus -o":                 {"text", "wide", "name", "json", "yaml", "jsonpath=", "custom-columns="},
		"doctor --color":          {"auto", "always", "never"},
		"upgrade pause --dry-run": {"none", "server"},
		"gpus":                    {}, "doctor": {}, "claims": {}, "explain": {}, "defrag plan": {}, "quota": {}, "upgrade rollback": {}, "gpus -n": {},
	} {
		got := strings.Split(tessera(t, append([]string{"__complete"}, append(strings.Fields(line), "")...)...), "\n")
		for _, name := range want {
			if !slices.Contains(got, name) {
				t.Errorf("%s: %q, want %q in it", line, got, name)
			}
		}
		// The last lines are the directive, which excludes files, and its description.
		if strings.Contains(strings.Join(got, "\n"), "ShellCompDirectiveDefault") {
			t.Errorf("%s: the shell offers files: %q", line, got)
		}
	}
}

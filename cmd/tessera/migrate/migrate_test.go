package migrate

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fixtures are those of what decides.
const fixtures = "../../../installer/migrate/testdata"

// tessera runs the verb and returns its standard output and standard error.
func tessera(t *testing.T, in string, args ...string) (out, errOut string, err error) {
	t.Helper()
	cmd := Command()
	var stdout, stderr bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	at := func(name string) string { return filepath.Join(fixtures, name) }
	policy, err := os.ReadFile(at("policy-container.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const driver = `{"apiVersion":"nvidia.com/v1alpha1","kind":"NVIDIADriver","metadata":{"name":"a"},"spec":{"default":true,"version":"580.95.05"}}`
	tests := map[string]struct {
		in   string
		args []string
		// golden is the file with the output; without one, out is contained in the output. errOut is contained in the error output.
		golden, out, errOut string
	}{
		"a policy and layouts": {"", []string{at("policy-container.yaml"), "--mig-config", at("mig-parted.yaml")}, "out-container.yaml", "", "fields were not converted"},
		"standard input":       {string(policy), []string{"-", "--mig-config", at("mig-parted.yaml")}, "out-container.yaml", "", "fields were not converted"},
		"with drivers":         {"", []string{at("policy-drivers.yaml"), "--nvidiadriver", at("drivers.yaml")}, "out-drivers.yaml", "", "fields were not converted"},
		"values":               {"", []string{at("values-full.yaml")}, "out-full.yaml", "", "fields were not converted"},
		"nothing is lost":      {driver, []string{"-"}, "", "# Every field was converted.\napiVersion: tessera.dev/v1alpha1\nkind: NVIDIADriver\n", ""},
		"layouts in a ConfigMap": {"apiVersion: nvidia.com/v1\nkind: ClusterPolicy\n---\napiVersion: v1\nkind: ConfigMap\ndata:\n  config.yaml: |\n" +
			"    mig-configs: {half: [{devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}]}\n", []string{"-"}, "", "          nvidia.com/mig.config: half\n", "fields were not converted"},
		"a list": {`{"apiVersion":"v1","kind":"List","items":[` + driver + `]}`, []string{"-"}, "", "  version: 580.95.05\n", ""},
	}
	for name, test := range tests {
		out, errOut, err := tessera(t, test.in, test.args...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if test.golden != "" {
			want, err := os.ReadFile(at(test.golden))
			if err != nil {
				t.Fatal(err)
			}
			if out != string(want) {
				t.Errorf("%s: not what %s has, but\n%s", name, test.golden, out)
			}
		}
		if !strings.Contains(out, test.out) || !strings.Contains(errOut, test.errOut) || (test.errOut == "") != (errOut == "") {
			t.Errorf("%s: output\n%s\nerror output %q, want %q and %q", name, out, errOut, test.out, test.errOut)
		}
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   string
		args []string
		want string
	}{
		"no file":            {"", nil, "nothing to convert: name a file"},
		"a file that is not": {"", []string{"no-such.yaml"}, "read no-such.yaml: "},
		"nothing in it":      {"", []string{"-"}, "no input found"},
		"no YAML":            {"a: [", []string{"-"}, "read -: read document 1: "},
		"another object":     {"apiVersion: v1\nkind: Pod\n", []string{"-"}, "convert v1 Pod: it must be"},
	}
	for name, test := range tests {
		if out, _, err := tessera(t, test.in, test.args...); err == nil || !strings.Contains(err.Error(), test.want) || out != "" {
			t.Errorf("%s: prints %q, %v, want %q", name, out, err, test.want)
		}
	}
}

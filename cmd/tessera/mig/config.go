package mig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Version is the version of the file format.
const Version = "v1"

// Config is a file of layouts.
type Config struct {
	Version string `json:"version"`
	// Layouts have entries by label. Each GPU is described by at most one of them.
	Layouts map[string][]Entry `json:"mig-configs"`
}

// Entry says what some of a node's GPUs hold.
type Entry struct {
	// Filter is a list of PCI ids; GPUs of other models are not meant. Empty means any.
	Filter Filter `json:"device-filter,omitempty"`
	// Devices are the GPUs by index.
	Devices Devices `json:"devices"`
	// Enabled is the MIG mode. Without MIG there are no instances.
	Enabled *bool `json:"mig-enabled"`
	// Instances are amounts by the name of the profile.
	Instances map[string]Amount `json:"mig-devices,omitempty"`
}

// Filter is a list of ids of GPU models: PCI device and vendor in one hexadecimal number, such as
// 0x233010DE. In a file one of them may stand for the list.
type Filter []string

// Devices are GPUs by index, or all.
type Devices struct {
	All     bool
	Indices []int
}

// Amount is how many instances of a profile a GPU holds, wherever they fit, or where: Tessera's addition
// to the format is a list of first memory slices in place of the number.
type Amount struct {
	Count  int
	Starts []int
}

// Parse reads a file, YAML or JSON. It is strict: what is unknown, missing or contradictory is an error
// that says where.
func Parse(data []byte) (Config, error) {
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return Config{}, fmt.Errorf("read the layouts: %w", err)
	}
	var c Config
	unknown, err := strictjson.UnmarshalStrict(text, &c)
	if err := errors.Join(err, utilerrors.NewAggregate(unknown)); err != nil {
		return Config{}, fmt.Errorf("read the layouts: %w", err)
	}
	if c.Version != Version {
		return Config{}, fmt.Errorf("read the layouts: version %q: must be %s", c.Version, Version)
	}
	var errs []error
	for _, label := range slices.Sorted(maps.Keys(c.Layouts)) {
		if len(c.Layouts[label]) == 0 {
			errs = append(errs, fmt.Errorf("mig-configs.%s: has no entries", label))
		}
		for i, e := range c.Layouts[label] {
			if err := e.validate(); err != nil {
				errs = append(errs, fmt.Errorf("mig-configs.%s[%d].%w", label, i, err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Config{}, fmt.Errorf("read the layouts: %w", err)
	}
	return c, nil
}

// Select returns the entries of a layout. Without a label the only layout is meant.
func (c Config) Select(label string) ([]Entry, error) {
	labels := slices.Sorted(maps.Keys(c.Layouts))
	if label == "" && len(labels) == 1 {
		label = labels[0]
	}
	entries, ok := c.Layouts[label]
	if !ok {
		return nil, fmt.Errorf("layout %q: the file has %s: choose one with -c", label, strings.Join(labels, ", "))
	}
	return entries, nil
}

func (e Entry) validate() error {
	for i, id := range e.Filter {
		if _, err := parseID(id); err != nil {
			return fmt.Errorf("device-filter[%d]: %w", i, err)
		}
	}
	switch {
	case !e.Devices.All && e.Devices.Indices == nil:
		return errors.New("devices: must be all or a list of indices")
	case e.Enabled == nil:
		return errors.New("mig-enabled: must be true or false")
	case *e.Enabled && e.Instances == nil:
		return errors.New("mig-devices: must be given with mig-enabled: true; {} is none")
	case !*e.Enabled && len(e.Instances) > 0:
		return errors.New("mig-devices: must be left out with mig-enabled: false")
	}
	for _, name := range slices.Sorted(maps.Keys(e.Instances)) {
		if _, isPart, _ := strings.Cut(name, "c."); isPart != "" {
			return fmt.Errorf("mig-devices[%s]: compute instances smaller than their GPU instance are not supported: use %s", name, isPart)
		}
	}
	return nil
}

// parseID reads a PCI device and vendor id.
func parseID(text string) (uint32, error) {
	digits, ok := strings.CutPrefix(strings.ToLower(text), "0x")
	id, err := strconv.ParseUint(digits, 16, 32)
	if !ok || err != nil || len(digits) != 8 {
		return 0, fmt.Errorf("%q: must be 0x, four digits of the PCI device and four of the vendor, such as 0x233010DE", text)
	}
	return uint32(id), nil
}

// UnmarshalJSON reads an id or a list of them. YAML takes an id without quotation marks for a number.
func (f *Filter) UnmarshalJSON(data []byte) error {
	var list []any
	if json.Unmarshal(data, &list) != nil {
		var one any
		if err := json.Unmarshal(data, &one); err != nil {
			return err
		}
		list = []any{one}
	}
	for _, id := range list {
		switch id := id.(type) {
		case string:
			if id != "" {
				*f = append(*f, id)
			}
		case float64:
			*f = append(*f, fmt.Sprintf("0x%08X", uint64(id)))
		default:
			return fmt.Errorf("device-filter: %s: must be an id such as 0x233010DE or a list of them", data)
		}
	}
	return nil
}

// UnmarshalJSON reads "all" or a list of indices.
func (d *Devices) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil && text == "all" {
		*d = Devices{All: true}
		return nil
	}
	var indices []int
	if err := json.Unmarshal(data, &indices); err != nil || indices == nil {
		return fmt.Errorf("devices: %s: must be all or a list of indices", data)
	}
	for _, i := range indices {
		if i < 0 {
			return fmt.Errorf("devices: %d: must not be negative", i)
		}
	}
	*d = Devices{Indices: indices}
	return nil
}

// MarshalJSON is the inverse of UnmarshalJSON.
func (d Devices) MarshalJSON() ([]byte, error) {
	if d.All {
		return json.Marshal("all")
	}
	return json.Marshal(d.Indices)
}

// UnmarshalJSON reads a number of instances or a list of first memory slices.
func (a *Amount) UnmarshalJSON(data []byte) error {
	var count int
	if json.Unmarshal(data, &count) == nil && count >= 0 && string(data) != "null" {
		*a = Amount{Count: count}
		return nil
	}
	var starts []int
	if err := json.Unmarshal(data, &starts); err != nil || starts == nil {
		return fmt.Errorf("mig-devices: %s: must be a number of instances, or a list of first memory slices", data)
	}
	*a = Amount{Count: len(starts), Starts: starts}
	return nil
}

// MarshalJSON is the inverse of UnmarshalJSON.
func (a Amount) MarshalJSON() ([]byte, error) {
	if a.Starts != nil {
		return json.Marshal(a.Starts)
	}
	return json.Marshal(a.Count)
}

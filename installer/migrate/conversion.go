package migrate

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// conversion is one source on its way.
type conversion struct {
	// source is what it is called in notes, root what its paths begin with, content its fields.
	source, root string
	content      map[string]any
	rules        []rule
	// policy and object are what it becomes: one of them is nil. driver and upgrade are parts of it; upgrade may be nil where the source has none.
	policy  *v1alpha1.ClusterPolicySpec
	object  *v1alpha1.NVIDIADriverSpec
	driver  *v1alpha1.DriverSpec
	upgrade *v1alpha1.UpgradePolicy
	result  *Result
}

// rule defines the conversion of one field, or of all fields below it.
type rule struct {
	path    string
	convert convert
}

// convert takes over the value and returns nothing, or returns the reason why it has no counterpart, as Note.Reason.
type convert func(c *conversion, value any) (reason string)

// run applies the rules to every field; the first rule of a path counts.
func (c *conversion) run() { c.below("", c.content) }

func (c *conversion) below(prefix string, object map[string]any) {
	for _, key := range keys(object) {
		path, value := prefix+key, object[key]
		if value == nil {
			continue
		}
		if convert := c.find(path); convert != nil {
			if reason := convert(c, value); reason != "" {
				c.refuse(path, value, reason)
			}
			continue
		}
		if inner, ok := value.(map[string]any); ok {
			c.below(path+".", inner)
			continue
		}
		c.refuse(path, value, unknownReason)
	}
}

func (c *conversion) find(path string) convert {
	for _, r := range c.rules {
		if r.path == path {
			return r.convert
		}
	}
	return nil
}

// refuse notes the field, or every field below it.
func (c *conversion) refuse(path string, value any, reason string) {
	if object, ok := value.(map[string]any); ok && len(object) > 0 {
		for _, key := range keys(object) {
			c.refuse(strings.TrimPrefix(path+"."+key, "."), object[key], reason)
		}
		return
	}
	c.result.Notes = append(c.result.Notes, Note{Source: c.source, Field: c.root + path, Reason: reason})
}

// at returns the value at a path of the source, or nil.
func (c *conversion) at(path string) any {
	var value any = c.content
	for name := range strings.SplitSeq(path, ".") {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = object[name]
	}
	return value
}

// textAt returns the text at a path of the source; a number is taken as it is written.
func (c *conversion) textAt(path string) string {
	switch value := c.at(path).(type) {
	case string:
		return value
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	return ""
}

// none is for fields without a counterpart.
func none(reason string) convert {
	return func(*conversion, any) string { return reason }
}

// met is for a field whose one value is what Tessera does anyway; another has no counterpart.
func met(fine any, otherwise string) convert {
	return func(_ *conversion, value any) string {
		if value == fine {
			return ""
		}
		return otherwise
	}
}

// into takes over a value that has the same form in ours.
func into[T any](target func(*conversion) *T) convert {
	return func(c *conversion, value any) string {
		text, err := json.Marshal(value)
		if err != nil {
			return "cannot be read: " + err.Error()
		}
		if err := json.Unmarshal(text, target(c)); err != nil {
			return "has an invalid format: " + err.Error()
		}
		return ""
	}
}

// seconds takes over a number of seconds; of none, zero means without end, which ours lacks or is by default.
func seconds(target func(*conversion) **metav1.Duration, zero string) convert {
	return func(c *conversion, value any) string {
		number, ok := value.(float64)
		switch {
		case !ok || number < 0:
			return fmt.Sprintf("must be a number of seconds, not %v", value)
		case number == 0:
			return zero
		}
		*target(c) = &metav1.Duration{Duration: time.Duration(number) * time.Second}
		return ""
	}
}

// choices takes over one of a few texts.
func choices[T ~string](target func(*conversion) *T, ours map[string]T) convert {
	return func(c *conversion, value any) string {
		text, _ := value.(string)
		chosen, ok := ours[text]
		if !ok {
			return fmt.Sprintf("has the value %q, which has no counterpart", text)
		}
		*target(c) = chosen
		return ""
	}
}

// name takes over the name of an object, of which the empty text means none.
func name(target func(*conversion) *string) convert { return into(target) }

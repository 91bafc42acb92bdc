package wire

import (
	"strings"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
)

// attributes collects the attributes of one device. Unknown values are left out.
type attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

// text adds a string, truncated to the maximum length; nothing if it is empty.
func (a attributes) text(name resourceapi.QualifiedName, value string) {
	if value != "" {
		a[name] = resourceapi.DeviceAttribute{StringValue: new(cut(value))}
	}
}

func (a attributes) number(name resourceapi.QualifiedName, value int) {
	a[name] = resourceapi.DeviceAttribute{IntValue: new(int64(value))}
}

// version adds a version as the API requires it; nothing if the text is not a version.
func (a attributes) version(name resourceapi.QualifiedName, text string) {
	if v, ok := semver(text); ok {
		a[name] = resourceapi.DeviceAttribute{VersionValue: new(v)}
	}
}

// cut truncates the text to the maximum length of an attribute in bytes, without splitting a character. Invalid UTF-8 is
// replaced.
func cut(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= resourceapi.DeviceAttributeMaxValueLength {
		return text
	}
	end := resourceapi.DeviceAttributeMaxValueLength
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// semver returns a dotted number as a semantic version: three parts without leading zeros. 580.65.06 becomes 580.65.6, and 9.0
// becomes 9.0.0. Further parts are dropped. It is false if the text is not a dotted number or is too long.
func semver(text string) (string, bool) {
	parts := strings.Split(text, ".")
	for i, part := range parts {
		if part == "" || strings.Trim(part, "0123456789") != "" {
			return "", false
		}
		if parts[i] = strings.TrimLeft(part, "0"); parts[i] == "" {
			parts[i] = "0"
		}
	}
	version := strings.Join(append(parts, "0", "0")[:3], ".")
	return version, len(version) <= resourceapi.DeviceAttributeMaxValueLength
}

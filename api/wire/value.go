package wire

import (
	"strings"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
)

// attributes collects the attributes of one device. What is unknown is left out.
type attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

// text adds a string, cut to what the API takes.
func (a attributes) text(name resourceapi.QualifiedName, value string) {
	if value != "" {
		a[name] = resourceapi.DeviceAttribute{StringValue: new(cut(value))}
	}
}

func (a attributes) number(name resourceapi.QualifiedName, value int) {
	a[name] = resourceapi.DeviceAttribute{IntValue: new(int64(value))}
}

// version adds a version in the form that the API takes, and nothing when the text is no version.
func (a attributes) version(name resourceapi.QualifiedName, text string) {
	if v, ok := semver(text); ok {
		a[name] = resourceapi.DeviceAttribute{VersionValue: new(v)}
	}
}

// cut shortens the text to the bytes that an attribute may have, between two characters.
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

// semver returns a dotted number as a semantic version: without leading zeros, with three parts.
// What a driver writes as 580.65.06 is 580.65.6, and 9.0 is 9.0.0. Further parts are dropped.
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

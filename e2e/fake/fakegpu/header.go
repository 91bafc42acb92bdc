package fakegpu

import (
	"fmt"
	"hash/fnv"
	"reflect"
	"strings"
	"unicode"
)

// layoutHeader returns the C header with the state's layout, and the version of the layout.
func layoutHeader() (string, uint64) {
	var b strings.Builder
	b.WriteString("/* Generated from layout.go. */\n#pragma once\n#include <stdint.h>\n\n")
	for _, limit := range limits() {
		fmt.Fprintf(&b, "#define %s %d\n", limit.name, limit.value)
	}
	declareStruct(&b, reflect.TypeFor[stateFile](), map[reflect.Type]bool{})
	hash := fnv.New64a()
	hash.Write([]byte(b.String()))
	fmt.Fprintf(&b, "\n#define STATE_MAGIC %q\n#define STATE_VERSION 0x%xULL\n", strings.TrimRight(string(magic[:]), "\x00"), hash.Sum64())
	return b.String(), hash.Sum64()
}

// declareStruct writes the C declaration of a struct after those of the structs inside it.
func declareStruct(b *strings.Builder, t reflect.Type, done map[reflect.Type]bool) {
	if done[t] {
		return
	}
	done[t] = true
	for field := range t.Fields() {
		if inner := element(field.Type); inner.Kind() == reflect.Struct {
			declareStruct(b, inner, done)
		}
	}
	fmt.Fprintf(b, "\nstruct %s {\n", snake(t.Name()))
	for field := range t.Fields() {
		fmt.Fprintf(b, "\t%s %s%s;\n", cType(field.Type), fieldName(field), dimension(field.Type))
	}
	fmt.Fprintf(b, "};\n_Static_assert(sizeof(struct %s) == %d, \"layout\");\n", snake(t.Name()), t.Size())
}

// fieldName is the value of the tag c, which a field has when its Go name does not convert to a
// good C name.
func fieldName(field reflect.StructField) string {
	if name, ok := field.Tag.Lookup("c"); ok {
		return name
	}
	return snake(field.Name)
}

func element(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Array {
		return t.Elem()
	}
	return t
}

func dimension(t reflect.Type) string {
	if t.Kind() == reflect.Array {
		return fmt.Sprintf("[%d]", t.Len())
	}
	return ""
}

// cType names the C type of a field or of the elements of an array; named byte arrays are text.
func cType(t reflect.Type) string {
	inner := element(t)
	switch {
	case inner.Kind() == reflect.Struct:
		return "struct " + snake(inner.Name())
	case t.Kind() == reflect.Array && inner.Kind() == reflect.Uint8 && t.Name() != "":
		return "char"
	}
	return inner.Kind().String() + "_t"
}

// snake converts a Go name into a C name: MaxMIG → max_mig.
func snake(name string) string {
	runes := []rune(name)
	var b strings.Builder
	for i, r := range runes {
		begins := unicode.IsUpper(r) && i > 0 &&
			(unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if begins {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

package nvmlcalls

import (
	"encoding/hex"
	"reflect"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Recording is the answers of one machine.
type Recording struct {
	Driver string `json:"driver"`
	// Missing are the functions of NVML's header that the library lacks.
	Missing []string `json:"missing"`
	Calls   []Call   `json:"calls"`
}

// Call is one call and its answer.
type Call struct {
	Function string `json:"function"`
	// Arguments are those other than the GPU.
	Arguments string `json:"arguments,omitempty"`
	Code      int    `json:"code"`
	// FirstMicros is the duration of the first call, MedianMicros that of repetitions.
	FirstMicros  int64 `json:"firstMicros"`
	MedianMicros int64 `json:"medianMicros"`
	// Value is what the first call returned; absent after an error.
	Value any `json:"value,omitempty"`
}

// Key identifies a call in recordings.
func (c Call) Key() string { return c.Function + "(" + c.Arguments + ")" }

// repetitions is how often a call is repeated for the median.
const repetitions = 9

// question is one call of NVML.
type question struct {
	function, arguments string
	query               func() (any, nvml.Return)
}

func (q question) record(lib nvml.Interface) Call {
	c := Call{Function: q.function, Arguments: q.arguments, Code: int(nvml.ERROR_FUNCTION_NOT_FOUND)}
	if lib.Extensions().LookupSymbol(q.function) != nil {
		return c // go-nvml would end the process
	}
	began := time.Now()
	value, code := q.query()
	c.FirstMicros, c.Code = time.Since(began).Microseconds(), int(code)
	if code == nvml.SUCCESS {
		c.Value = plain(reflect.ValueOf(value))
	}
	var micros []int64
	for range repetitions {
		began := time.Now()
		q.query()
		micros = append(micros, time.Since(began).Microseconds())
	}
	slices.Sort(micros)
	c.MedianMicros = micros[repetitions/2]
	return c
}

// Record queries everything of the machine and of the GPU with the index. The library is initialized.
func Record(lib nvml.Interface, index int, functions []string) (Recording, nvml.Return) {
	var r Recording
	var code nvml.Return
	if r.Driver, code = lib.SystemGetDriverVersion(); code != nvml.SUCCESS {
		return r, code
	}
	for _, name := range functions {
		if lib.Extensions().LookupSymbol(name) != nil {
			r.Missing = append(r.Missing, name)
		}
	}
	device, code := lib.DeviceGetHandleByIndex(index)
	if code != nvml.SUCCESS {
		return r, code
	}
	for _, q := range slices.Concat(machine(lib), identity(device), memory(device), modes(device), profiles(device), instances(device), links(device), sensors(device),
		fields(device), processes(device), events(lib, device)) {
		r.Calls = append(r.Calls, q.record(lib))
	}
	return r, nvml.SUCCESS
}

// plain returns the value for JSON: arrays of C characters are text, those of bytes hexadecimal digits, and structs are maps.
func plain(v reflect.Value) any {
	switch v.Kind() { //nolint:exhaustive // other kinds are plain
	case reflect.Invalid:
		return nil
	case reflect.Interface:
		return plain(v.Elem())
	case reflect.Struct:
		all := map[string]any{}
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				all[field.Name] = plain(v.Field(i))
			}
		}
		return all
	case reflect.Array, reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Int8 {
			return text(v)
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return hex.EncodeToString(bytes(v))
		}
		all := make([]any, v.Len())
		for i := range all {
			all[i] = plain(v.Index(i))
		}
		return all
	}
	return v.Interface()
}

// text returns the characters before the first null.
func text(array reflect.Value) string {
	var all []byte
	for i := range array.Len() {
		c := byte(array.Index(i).Int())
		if c == 0 {
			break
		}
		all = append(all, c)
	}
	return string(all)
}

func bytes(array reflect.Value) []byte {
	all := make([]byte, array.Len())
	for i := range all {
		all[i] = byte(array.Index(i).Uint())
	}
	return all
}

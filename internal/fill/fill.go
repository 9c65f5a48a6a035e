// Package fill helps tests to find fields that are forgotten where a type is copied by hand. Fill
// sets every field of a value, at any depth, to something that is not zero. Differences returns
// the fields in which two values differ. Ignored returns those that do not affect a function. So a
// field that is added only to the type makes the test fail, and the test can name the other
// places:
//
//	var in plimsoll.Task
//	fill.Fill(&in, fill.Options{})
//	out := wire.TaskFromProto(wire.TaskToProto(&in))
//	for _, d := range fill.Differences(&in, &out) {
//		t.Errorf("%s is lost: %s", d.Path, d)
//	}
//
// The package owns nothing and is deterministic. It panics for a type that it cannot fill. Costs
// are linear in the value; those of Ignored are quadratic. Only tests call it.
package fill

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Options adapt the filling to a type, so that its value is a possible one. A path is that of a
// field below the value, such as Groups[].Retry.Limit. In it, [] stands for each entry of a list
// and each value of a map, and {} for each key of a map. The end of a path matches any path that
// ends so. With a dot before it, a path matches itself alone.
type Options struct {
	Leave  []string                   // fields to leave unchanged
	Values map[string]func(n int) any // values of fields, by the longest matching path; n counts up
	After  int                        // numbers begin after it, so that a second value has other numbers
	OneOf  []string                   // structs of which one field is set at a time, in an entry for each field
}

// Fill sets every field of the value that v points to. Lists and maps get two entries,
// enumerations a known value, and numbers of 64 bits one that exceeds 32 bits. No two texts or
// numbers are the same. A recursive type is filled to a depth of two.
func Fill(v any, o Options) {
	f := filler{options: o, n: o.After}
	f.fill(reflect.ValueOf(v).Elem(), "")
}

type filler struct {
	options Options
	n       int
	within  []reflect.Type // structs around the current field, outermost first
}

// matches reports whether a rule applies to a path.
func matches(rule, path string) bool {
	return strings.HasSuffix("."+path, "."+strings.TrimPrefix(rule, ".")) &&
		(rule[0] != '.' || len(rule) == len(path)+1)
}

func contains(rules []string, path string) bool {
	return slices.ContainsFunc(rules, func(rule string) bool { return matches(rule, path) })
}

func (f *filler) fill(v reflect.Value, path string) {
	if contains(f.options.Leave, path) {
		return
	}
	f.n++
	if value := f.value(path); value != nil {
		v.Set(reflect.ValueOf(value(f.n)).Convert(v.Type()))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		f.fillStruct(v, path)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), path)
	case reflect.Slice:
		f.fillSlice(v, path)
	case reflect.Map:
		f.fillMap(v, path)
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i), path+"[]")
		}
	default:
		f.fillScalar(v, path)
	}
}

// value returns the function of the longest rule that matches, or nil.
func (f *filler) value(path string) (value func(n int) any) {
	longest := 0
	for rule, v := range f.options.Values {
		if len(rule) > longest && matches(rule, path) {
			longest, value = len(rule), v
		}
	}
	return value
}

func (f *filler) fillStruct(v reflect.Value, path string) {
	depth := 0
	for _, t := range f.within {
		if t == v.Type() {
			depth++
		}
	}
	if depth == 2 {
		return
	}
	f.within = append(f.within, v.Type())
	for i := range v.NumField() {
		f.fill(v.Field(i), join(path, v.Type().Field(i).Name))
	}
	f.within = f.within[:len(f.within)-1]
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// entries returns the number of entries in a list or map of a type, and a function that fills the
// i-th.
func (f *filler) entries(of reflect.Type, path string) (n int, fill func(v reflect.Value, i int)) {
	if !contains(f.options.OneOf, path) {
		return 2, func(v reflect.Value, _ int) { f.fill(v, path) }
	}
	return of.NumField(), func(v reflect.Value, i int) { f.fill(v.Field(i), join(path, of.Field(i).Name)) }
}

func (f *filler) fillSlice(v reflect.Value, path string) {
	n, fill := f.entries(v.Type().Elem(), path+"[]")
	list := reflect.MakeSlice(v.Type(), n, n)
	for i := range n {
		fill(list.Index(i), i)
	}
	if !list.Index(0).IsZero() { // a recursive struct is left out at the largest depth
		v.Set(list)
	}
}

func (f *filler) fillMap(v reflect.Value, path string) {
	n, fill := f.entries(v.Type().Elem(), path+"[]")
	m := reflect.MakeMap(v.Type())
	for i := range n {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key, path+"{}")
		fill(value, i)
		m.SetMapIndex(key, value)
	}
	v.Set(m)
}

// enumeration is a type with a limited set of possible numbers.
type enumeration interface{ Known() bool }

func (f *filler) fillScalar(v reflect.Value, path string) {
	if _, is := v.Interface().(enumeration); is {
		f.fillEnum(v, path)
		return
	}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		v.SetInt(int64(f.n) * int64(time.Second))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("s%d", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(int64(f.n)<<32 + int64(f.n))
	case reflect.Int, reflect.Int32:
		v.SetInt(int64(f.n))
	case reflect.Uint64:
		v.SetUint(uint64(f.n)<<32 + uint64(f.n))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(uint64(f.n%255 + 1))
	case reflect.Float64:
		v.SetFloat(float64(f.n) + 0.5)
	default:
		panic(fmt.Sprintf("fill: %s is a %s, which cannot be filled", path, v.Kind()))
	}
}

// fillEnum sets the n-th known value after zero, and begins again after the last.
func (f *filler) fillEnum(v reflect.Value, path string) {
	highest := uint64(1)<<v.Type().Bits() - 1
	var known []uint64
	for x := uint64(1); x <= highest; x++ {
		v.SetUint(x)
		if e, _ := v.Interface().(enumeration); e.Known() {
			known = append(known, x)
		}
	}
	if len(known) == 0 {
		panic(fmt.Sprintf("fill: %s knows no value but zero", path))
	}
	v.SetUint(known[f.n%len(known)])
}

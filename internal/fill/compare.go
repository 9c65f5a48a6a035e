package fill

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Difference is a field in which two values differ.
type Difference struct {
	Path      string // such as Groups[1].Retry.Limit
	Rule      string // path in the form of Options, such as Groups[].Retry.Limit
	Type      string // the struct that has the field, such as RetryPolicy
	Field     string // such as Limit
	Want, Got string
}

// String returns the difference for people.
func (d Difference) String() string { return fmt.Sprintf("%s went in, %s came out", d.Want, d.Got) }

// Differences compares two values of one type, given by pointers, field by field. Lists and maps of
// different lengths are one difference.
func Differences(want, got any) []Difference {
	var c comparison
	c.compare(place{}, reflect.ValueOf(want).Elem(), reflect.ValueOf(got).Elem())
	return c.found
}

// Unexpected removes the intended differences, and all but the first of several with one rule. It
// also returns the rules that match no difference, because their statement is wrong.
func Unexpected(found []Difference, meant map[string]string) (left []Difference, stale []string) {
	needed, told := map[string]bool{}, map[string]bool{}
	for _, d := range found {
		switch {
		case meant[d.Rule] != "":
			needed[d.Rule] = true
		case !told[d.Rule]:
			told[d.Rule] = true
			left = append(left, d)
		}
	}
	for rule := range meant {
		if !needed[rule] {
			stale = append(stale, rule)
		}
	}
	slices.Sort(stale)
	return left, stale
}

// place is the position of a value.
type place struct {
	path, rule  string
	owner, name string
}

func (p place) field(of reflect.Type, i int) place {
	name := of.Field(i).Name
	return place{join(p.path, name), join(p.rule, name), of.Name(), name}
}

func (p place) entry(key any) place {
	p.path += fmt.Sprintf("[%v]", key)
	p.rule += "[]"
	return p
}

type comparison struct{ found []Difference }

func (c *comparison) report(at place, want, got any) {
	c.found = append(c.found, Difference{
		Path: at.path, Rule: at.rule, Type: at.owner, Field: at.name, Want: fmt.Sprintf("%#v", want),
		Got: fmt.Sprintf("%#v", got),
	})
}

func (c *comparison) compare(at place, want, got reflect.Value) {
	switch want.Kind() {
	case reflect.Struct:
		for i := range want.NumField() {
			c.compare(at.field(want.Type(), i), want.Field(i), got.Field(i))
		}
	case reflect.Pointer:
		if want.IsNil() || got.IsNil() {
			if want.IsNil() != got.IsNil() {
				c.report(at, want.Interface(), got.Interface())
			}
			return
		}
		c.compare(at, want.Elem(), got.Elem())
	case reflect.Slice:
		if want.Len() != got.Len() {
			c.report(at, want.Interface(), got.Interface())
			return
		}
		for i := range want.Len() {
			c.compare(at.entry(i), want.Index(i), got.Index(i))
		}
	case reflect.Map:
		c.compareMaps(at, want, got)
	default:
		if !want.Equal(got) {
			c.report(at, want.Interface(), got.Interface())
		}
	}
}

func (c *comparison) compareMaps(at place, want, got reflect.Value) {
	keys := want.MapKeys()
	missing := func(key reflect.Value) bool { return !got.MapIndex(key).IsValid() }
	if got.Len() != want.Len() || slices.ContainsFunc(keys, missing) {
		c.report(at, want.Interface(), got.Interface())
		return
	}
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		c.compare(at.entry(key), want.MapIndex(key), got.MapIndex(key))
	}
}

// Ignored returns the sorted rules of the fields that do not affect the result of image. It sets
// one field of a filled value to zero at a time.
func Ignored[T any](o Options, image func(v *T) string) []string {
	var full T
	Fill(&full, o)
	whole := image(&full)
	var ignored []string
	for n := 0; ; n++ {
		var v T
		Fill(&v, o)
		z := zeroing{left: n}
		z.walk(place{}, reflect.ValueOf(&v).Elem())
		if !z.done {
			slices.Sort(ignored)
			return slices.Compact(ignored)
		}
		if image(&v) == whole {
			ignored = append(ignored, z.rule)
		}
	}
}

// zeroing sets a field to zero after it has passed left others.
type zeroing struct {
	left int
	done bool
	rule string
}

// walk visits the fields that hold no structs.
func (z *zeroing) walk(at place, v reflect.Value) {
	if z.done || v.IsZero() {
		return
	}
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			z.walk(at.field(v.Type(), i), v.Field(i))
		}
	case v.Kind() == reflect.Pointer:
		z.walk(at, v.Elem())
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		for i := range v.Len() {
			z.walk(at.entry(i), v.Index(i))
		}
	case v.Kind() == reflect.Map && v.Type().Elem().Kind() == reflect.Struct:
		z.walkMap(at, v)
	case z.left > 0:
		z.left--
	default:
		z.done, z.rule = true, at.rule
		v.SetZero()
	}
}

func (z *zeroing) walkMap(at place, v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		value := reflect.New(v.Type().Elem()).Elem()
		value.Set(v.MapIndex(key))
		z.walk(at.entry(key), value)
		v.SetMapIndex(key, value)
	}
}

// Zero returns the sorted rules of the zero fields in the value that v points to. In a list or
// map, one entry that has a field is enough.
func Zero(v any) []string {
	zero, set := map[string]bool{}, map[string]bool{}
	findZero(place{}, reflect.ValueOf(v).Elem(), zero, set)
	maps.DeleteFunc(zero, func(rule string, _ bool) bool { return set[rule] })
	return slices.Sorted(maps.Keys(zero))
}

func findZero(at place, v reflect.Value, zero, set map[string]bool) {
	if v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0 {
		zero[at.rule] = true
		return
	}
	set[at.rule] = true
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			findZero(at.field(v.Type(), i), v.Field(i), zero, set)
		}
	case reflect.Pointer:
		findZero(at, v.Elem(), zero, set)
	case reflect.Slice:
		for i := range v.Len() {
			findZero(at.entry(i), v.Index(i), zero, set)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			findZero(at.entry(key), v.MapIndex(key), zero, set)
		}
	}
}

package placement_test

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// fill sets everything in a value to something that is not zero, each to something else.
func fill(v reflect.Value, next *int) {
	*next++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, next)
			fill(value, next)
			v.SetMapIndex(key, value)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), next)
		fill(v.Index(1), next)
	case reflect.String:
		v.SetString(fmt.Sprint("text", *next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(int64(*next))
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(float64(*next))
	default:
		panic("a request holds a " + v.Kind().String())
	}
}

// vary calls try with one thing after the other in a value changed, and puts each back.
func vary(v reflect.Value, path string, try func(path string)) {
	old := reflect.ValueOf(v.Interface())
	set := func(to reflect.Value, what string) {
		v.Set(to)
		try(path + what)
		v.Set(old)
	}
	if v.Type() == reflect.TypeFor[plimsoll.Trait]() {
		for _, t := range []plimsoll.Trait{
			{},
			{Flag: true},
			{Words: []string{"a"}},
			{Words: []string{"b"}},
			{Words: []string{"a", "b"}},
			{Words: []string{"ab"}},
		} {
			set(reflect.ValueOf(t), fmt.Sprintf("=%v", t))
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			vary(v.Field(i), path+"."+v.Type().Field(i).Name, try)
		}
	case reflect.Map:
		varyMap(v, path, try)
	case reflect.Slice:
		set(reflect.Zero(v.Type()), "=nil")
		set(v.Slice(0, 1), " shorter")
		set(reflect.Append(v.Slice3(0, 2, 2), v.Index(0)), " longer")
		turned := reflect.MakeSlice(v.Type(), 2, 2)
		turned.Index(0).Set(v.Index(1))
		turned.Index(1).Set(v.Index(0))
		set(turned, " turned round")
		for i := range v.Len() {
			vary(v.Index(i), fmt.Sprintf("%s[%d]", path, i), try)
		}
	case reflect.String:
		set(reflect.ValueOf("").Convert(v.Type()), `=""`)
		set(reflect.ValueOf(v.String()+"x").Convert(v.Type()), "+x")
	case reflect.Bool:
		set(reflect.ValueOf(!v.Bool()), " not")
	case reflect.Int32, reflect.Int64:
		set(reflect.ValueOf(v.Int()+1).Convert(v.Type()), "+1")
		set(reflect.ValueOf(-v.Int()).Convert(v.Type()), " negative")
	case reflect.Uint8:
		set(reflect.ValueOf(v.Uint()+1).Convert(v.Type()), "+1")
	case reflect.Float64:
		set(reflect.ValueOf(v.Float()+0.25), "+0.25")
	}
}

func varyMap(v reflect.Value, path string, try func(string)) {
	old := reflect.ValueOf(v.Interface())
	keys := v.MapKeys()
	changed := func(what string, change func(m reflect.Value)) {
		m := reflect.MakeMap(v.Type())
		for _, k := range keys {
			m.SetMapIndex(k, old.MapIndex(k))
		}
		change(m)
		v.Set(m)
		try(path + what)
		v.Set(old)
	}
	v.Set(reflect.Zero(v.Type()))
	try(path + "=nil")
	v.Set(old)
	for _, k := range keys {
		changed(" without "+k.String(), func(m reflect.Value) { m.SetMapIndex(k, reflect.Value{}) })
		changed(" with another name for "+k.String(), func(m reflect.Value) {
			m.SetMapIndex(k, reflect.Value{})
			m.SetMapIndex(reflect.ValueOf(k.String()+"x").Convert(k.Type()), old.MapIndex(k))
		})
		value := reflect.New(v.Type().Elem()).Elem()
		value.Set(old.MapIndex(k))
		vary(value, path+"["+k.String()+"]", func(inner string) {
			changed(inner[len(path):], func(m reflect.Value) { m.SetMapIndex(k, value) })
		})
	}
}

// Two requests that differ in anything have different keys: every field of a request is in it, also
// one that is added later and of which nobody thought.
func TestKeysTellRequestsApart(t *testing.T) {
	var r placement.Request
	n := 0
	fill(reflect.ValueOf(&r).Elem(), &n)
	seen := map[string]string{string(r.AppendKey(nil)): "the request"}
	vary(reflect.ValueOf(&r).Elem(), "request", func(path string) {
		key := string(r.AppendKey(nil))
		if other, ok := seen[key]; ok {
			t.Errorf("%s gives the key of %s", path, other)
		}
		seen[key] = path
	})
	if len(seen) < 200 {
		t.Errorf("%d requests were tried: the test tests little", len(seen))
	}
}

// Requests that are the same have the same key, however their maps came about, and a key is put
// behind what is there.
func TestKeysOfEqualRequestsAreEqual(t *testing.T) {
	for range 20 {
		var a, b placement.Request
		n, m := 0, 0
		fill(reflect.ValueOf(&a).Elem(), &n)
		fill(reflect.ValueOf(&b).Elem(), &m)
		if key := b.AppendKey([]byte("before")); !bytes.Equal(append([]byte("before"), a.AppendKey(nil)...), key) {
			t.Fatal("two requests that are the same have different keys")
		}
	}
}

// Requests of different jobs that ask for the same share a key, so that they are tried once, unless
// they are spread: then what counts is the group.
func TestKeysAreSharedByJobs(t *testing.T) {
	a, b := asks(1), asks(1, func(r *placement.Request) { r.Job, r.Group = "other", "work" })
	if !bytes.Equal(a.AppendKey(nil), b.AppendKey(nil)) {
		t.Error("the job makes a difference to a request that is not spread")
	}
	for _, spread := range []func(*placement.Request){
		func(r *placement.Request) { r.Constraints.Spread = []plimsoll.Spread{{By: "rack", MaxSkew: 1}} },
		func(r *placement.Request) { r.Preferences.Spread = []plimsoll.Spread{{By: "rack", MaxSkew: 1}} },
	} {
		a, b := *a, *b
		spread(&a)
		spread(&b)
		if bytes.Equal(a.AppendKey(nil), b.AppendKey(nil)) {
			t.Error("the job makes no difference to a request that is spread")
		}
	}
}

// No networks asked for, and networks asked for of which there are none, are different: the second
// keeps servers that have networks.
func TestKeysTellNoNetworksFromAnEmptyList(t *testing.T) {
	with := func(networks [][]string) string {
		return string(asks(1, func(r *placement.Request) { r.Constraints.Networks = networks }).AppendKey(nil))
	}
	seen := map[string]int{}
	for i, networks := range [][][]string{
		nil, {}, {{}}, {{}, {}}, {{""}}, {{"a"}}, {{"a"}, {}}, {{}, {"a"}}, {{"a", "b"}}, {{"a"}, {"b"}},
	} {
		key := with(networks)
		if other, ok := seen[key]; ok {
			t.Errorf("%d and %d have the same key", i, other)
		}
		seen[key] = i
	}
}

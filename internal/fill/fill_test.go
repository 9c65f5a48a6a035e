package fill_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/fill"
)

type leaf struct {
	Text string
	Flag bool
}

type tree struct {
	Name     string
	Small    int32
	Large    int64
	Ratio    float64
	Length   time.Duration
	State    plimsoll.JobState
	Labels   map[string]string
	Leaves   []leaf
	ByName   map[string]leaf
	Pointer  *leaf
	Children []tree
	Raw      []byte
}

// Every field is set, except the innermost ones of a recursive type.
func TestFillSetsEveryField(t *testing.T) {
	var v tree
	fill.Fill(&v, fill.Options{})
	var empty tree
	for _, d := range fill.Differences(&empty, &v) {
		if d.Path == "" || d.Want == d.Got {
			t.Errorf("a difference without a field: %+v", d)
		}
	}
	if got := len(fill.Differences(&empty, &v)); got != 12 {
		t.Errorf("%d of 12 fields were set: %+v", got, v)
	}
	if len(v.Children) != 2 || len(v.Children[1].Children) != 0 || v.Children[1].Name == "" {
		t.Errorf("the children are %+v", v.Children)
	}
	if !v.State.Known() || v.Large>>32 == 0 || v.Leaves[0].Text == v.Leaves[1].Text {
		t.Errorf("got %+v", v)
	}
	var again tree
	fill.Fill(&again, fill.Options{})
	if d := cmp.Diff(v, again); d != "" {
		t.Errorf("a second time gave something else: %s", d)
	}
}

func TestOptions(t *testing.T) {
	var v tree
	fill.Fill(&v, fill.Options{
		Leave: []string{"Children", "Leaves[].Flag"},
		Values: map[string]func(int) any{
			"Labels{}": func(n int) any { return fmt.Sprintf("key-%d", n) },
			".State":   func(int) any { return plimsoll.JobFailed },
		},
		OneOf: []string{"ByName[]"},
	})
	if v.Children != nil || v.Leaves[0].Flag || v.Leaves[0].Text == "" || v.State != plimsoll.JobFailed {
		t.Errorf("got %+v", v)
	}
	for _, key := range slices.Sorted(maps.Keys(v.Labels)) {
		if key[:4] != "key-" {
			t.Errorf("a key is %q", key)
		}
	}
	texts, flags := 0, 0
	for _, l := range v.ByName {
		if (l.Text != "") == l.Flag {
			t.Errorf("%+v has not one field", l)
		}
		if l.Flag {
			flags++
		} else {
			texts++
		}
	}
	if texts != 1 || flags != 1 {
		t.Errorf("%d texts and %d flags", texts, flags)
	}
}

func TestDifferencesNameTheField(t *testing.T) {
	var in, out tree
	fill.Fill(&in, fill.Options{})
	fill.Fill(&out, fill.Options{})
	out.Leaves[1].Text = "else"
	out.Labels = nil
	out.Children[0].Pointer = nil
	got := map[string]string{}
	for _, d := range fill.Differences(&in, &out) {
		got[d.Path] = d.Type + "." + d.Field + " " + d.Rule
	}
	want := map[string]string{
		"Labels": "tree.Labels Labels", "Leaves[1].Text": "leaf.Text Leaves[].Text",
		"Children[0].Pointer": "tree.Pointer Children[].Pointer",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got: %s", d)
	}
	left, stale := fill.Unexpected(fill.Differences(&in, &out), map[string]string{"Labels": "meant", "Name": "not so"})
	if len(left) != 2 || len(stale) != 1 || stale[0] != "Name" {
		t.Errorf("left %v, stale %v", left, stale)
	}
}

func TestIgnored(t *testing.T) {
	got := fill.Ignored(fill.Options{Leave: []string{"Children"}}, func(v *tree) string {
		s := fmt.Sprint(v.Name, v.Small, v.Large, v.Ratio, v.Length, v.State, v.Labels, string(v.Raw), *v.Pointer)
		for _, l := range v.Leaves {
			s += l.Text
		}
		for _, key := range slices.Sorted(maps.Keys(v.ByName)) {
			s += fmt.Sprint(v.ByName[key].Flag)
		}
		return s
	})
	if d := cmp.Diff([]string{"ByName[].Text", "Leaves[].Flag"}, got); d != "" {
		t.Errorf("-want +got: %s", d)
	}
}

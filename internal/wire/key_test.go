package wire

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// The key of a policy names its kind and its name, and nothing else is one.
func TestPolicyKey(t *testing.T) {
	for _, ref := range []plimsoll.PolicyRef{
		{Kind: plimsoll.PolicyAction, Name: "shed"},
		{Kind: plimsoll.PolicyTaskQOS, Name: "batch"},
		{Kind: plimsoll.PolicyNodeQOS, Name: "busy/odd"},
	} {
		if got, ok := SplitPolicyKey(PolicyKey(ref)); !ok || got != ref {
			t.Errorf("%v became %v, %t", ref, got, ok)
		}
	}
	for _, key := range []string{"", "Action", "Axtion/shed", "/shed"} {
		if got, ok := SplitPolicyKey(key); ok {
			t.Errorf("%q was taken as %v", key, got)
		}
	}
}

func TestTaskKey(t *testing.T) {
	for _, test := range []struct {
		job, group string
		index      int32
		want       string
	}{
		{"wordcount", "map", 0, "wordcount\x00map\x000000000"},
		{"a.b", "g", 1_234_567, "a.b\x00g\x001234567"},
		{"a", "g", 10_000_000, "a\x00g\x0010000000"},
		{"a", "g", -1, "a\x00g\x00-1"},
	} {
		if got := TaskKey(
			test.job, test.group, test.index,
		); got != test.want || !strings.HasPrefix(got, TaskKeyPrefix(test.job)) {
			t.Errorf("the key of %s.%s.%d is %q, want %q", test.job, test.group, test.index, got, test.want)
		}
		if job, group, index, ok := SplitTaskKey(
			test.want,
		); !ok || job != test.job || group != test.group || index != test.index {
			t.Errorf("%q was split into %q, %q, %d, %v", test.want, job, group, index, ok)
		}
	}
	for _, key := range []string{
		"", "a", "a\x00b", "a\x00b\x00", "a\x00b\x001", "a\x00b\x00000000x", "a\x00b\x00c\x000000001",
		"a\x00b\x00+000001",
	} {
		if job, group, index, ok := SplitTaskKey(key); ok {
			t.Errorf("%q was split into %q, %q, %d", key, job, group, index)
		}
	}
}

// The tasks of a job stand together, and those of a group in the order of their index.
func TestTaskKeysAreOrdered(t *testing.T) {
	keys := []string{
		TaskKey("a", "g", 0), TaskKey("a", "g", 2), TaskKey("a", "g", 10), TaskKey("a", "g-1", 0),
		TaskKey("a-", "g", 0),
		TaskKey("a.b", "g", 0), TaskKey("ab", "g", 999_999),
	}
	if !slices.IsSorted(keys) {
		t.Errorf("not in order: %q", keys)
	}
}

func TestSplitTaskID(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		job := rapid.StringMatching(`[a-z][a-z0-9.-]{0,10}[a-z]`).Draw(t, "job")
		group := rapid.StringMatching(`[a-z][a-z0-9-]{0,5}`).Draw(t, "group")
		index := rapid.Int32Min(0).Draw(t, "index")
		j, g, i, ok := SplitTaskID(plimsoll.TaskID(job, group, index))
		if !ok || j != job || g != group || i != index {
			t.Fatalf("%s, %s, %d became %s, %s, %d, %v", job, group, index, j, g, i, ok)
		}
	})
	for _, id := range []string{
		"", "a", "a.b", "a.b.", ".b.0", "a..0", "..", "a.b.00", "a.b.01", "a.b.-1", "a.b.+1", "a.b.1x",
		"a.b.2147483648", "a.b.99999999999",
		"a.b. 1",
	} {
		if job, group, index, ok := SplitTaskID(id); ok {
			t.Errorf("%q was split into %q, %q, %d", id, job, group, index)
		}
	}
}

func TestIsTaskKeyOfIsThePrefixOfTheJob(t *testing.T) {
	for _, job := range []string{"a", "a.b", "ab", ""} {
		for _, key := range []string{TaskKey("a", "g", 0), TaskKey("ab", "g", 1), TaskKey("a.b", "a", 2), "a", ""} {
			if got, want := IsTaskKeyOf(key, job), strings.HasPrefix(key, TaskKeyPrefix(job)); got != want {
				t.Errorf("%q of %q: %v, want %v", key, job, got, want)
			}
		}
	}
}

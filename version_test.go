package plimsoll_test

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

func TestVersionsAreOrderedByEpochAndThenRevision(t *testing.T) {
	ordered := []plimsoll.Version{{}, {0, 1}, {0, 9}, {1, 0}, {1, 3}, {2, 1}}
	for i, v := range ordered {
		for j, w := range ordered {
			if v.Before(w) != (i < j) || (v.Compare(w) == 0) != (i == j) || v.IsZero() != (i == 0) {
				t.Errorf("%v and %v: %d", v, w, v.Compare(w))
			}
		}
	}
}

func TestAVersionIsReadAsItIsWritten(t *testing.T) {
	v := plimsoll.Version{Epoch: 3, Revision: 1044}
	if got, err := plimsoll.ParseVersion(v.String()); err != nil || got != v || v.String() != "3.1044" {
		t.Error(got, err)
	}
	for _, bad := range []string{"", ".", "3", "3.", ".3", "3.04", "+3.1", "3.1.2", "3.18446744073709551616", " 3.1"} {
		if _, err := plimsoll.ParseVersion(bad); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	for _, s := range []string{"0.0", "3.1044", "x", "1.-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := plimsoll.ParseVersion(s); err == nil && v.String() != s {
			t.Errorf("%q is read as %v", s, v)
		}
	})
}

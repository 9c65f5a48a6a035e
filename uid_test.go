package plimsoll_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// A uid tells when and in which batch its job was submitted, in bytes and in text.
func TestUIDTellsItsSubmit(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	for range 1000 {
		submitted, revision := rng.Int64(), rng.Uint64()
		u := plimsoll.MakeUID(submitted, revision)
		if u.Submitted() != submitted || u.Revision() != revision {
			t.Fatalf("MakeUID(%d, %d) tells %d, %d", submitted, revision, u.Submitted(), u.Revision())
		}
		if back, err := plimsoll.ParseUID(u.String()); err != nil || back != u {
			t.Fatalf("%v is read as %v: %v", u, back, err)
		}
	}
}

// Texts of uids sort as the submits do: by time, and at one time by revision.
func TestUIDsSortAsSubmits(t *testing.T) {
	times := []int64{0, 1, 31, 32, 1_700_000_000_000_000_000, 1_700_000_000_000_000_001, math.MaxInt64}
	var texts []string
	for _, at := range times {
		for _, revision := range []uint64{0, 1, 255, 256, math.MaxUint64} {
			texts = append(texts, plimsoll.MakeUID(at, revision).String())
		}
	}
	if !slices.IsSorted(texts) {
		t.Error("they are not in order:", texts)
	}
}

// The name of a lifetime is read back, and an id alone is one.
func TestNamesOfLifetimesAreReadBack(t *testing.T) {
	uid := plimsoll.MakeUID(1_700_000_000_000_000_000, 7)
	for name, want := range map[string]plimsoll.UID{
		"wordcount.map.3": {}, "wordcount.map.3~" + uid.String(): uid,
	} {
		id, got, err := plimsoll.SplitLifetimeName(name)
		if err != nil || id != "wordcount.map.3" || got != want || plimsoll.LifetimeName(id, got) != name {
			t.Errorf("%s is read as %s of %v: %v", name, id, got, err)
		}
		if plimsoll.ValidateID("id", name) == nil != want.IsZero() {
			t.Errorf("%s: an id cannot have a ~", name)
		}
	}
	for _, name := range []string{"a~", "a~x", "a~" + uid.String() + "~", "~"} {
		if _, _, err := plimsoll.SplitLifetimeName(name); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A uid has one text, so that texts can be compared.
func TestParseUIDRefusesOtherTexts(t *testing.T) {
	good := plimsoll.MakeUID(1_700_000_000_000_000_000, 7).String()
	for _, text := range []string{
		"", good[1:], good + "0", strings.ToUpper(good), good[:25] + "w", good[:25] + "\n", good[:25] + "=",
		good[:25] + "t", strings.Repeat("0", 1000),
	} {
		if u, err := plimsoll.ParseUID(text); plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !u.IsZero() {
			t.Errorf("%.40q gives %v, %v", text, u, err)
		} else if len(err.Error()) > 300 {
			t.Errorf("the error has %d bytes", len(err.Error()))
		}
	}
	if plimsoll.MakeUID(0, 1).IsZero() {
		t.Error("revision 1 at time 0 is taken for no uid")
	}
}

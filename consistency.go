package plimsoll

import (
	"fmt"
	"strings"
)

// Freshness is the freshness that a read asks for.
type Freshness uint8

// The kinds of freshness.
const (
	FreshnessStrict   Freshness = iota + 1 // everything acknowledged before the read
	FreshnessEventual                      // the copy as it is, without a wait
	FreshnessAtLeast                       // a revision that is named, and whatever came after it

	numFreshnesses
)

var freshnessNames = [numFreshnesses]string{"", "strict", "eventual", "at-least"}

// Known reports whether f is one of the constants.
func (f Freshness) Known() bool { return f >= FreshnessStrict && f < numFreshnesses }

// String returns the word of the freshness.
func (f Freshness) String() string { return wordOf(freshnessNames[:], f) }

// ParseFreshness is the inverse of String; an unknown name is zero.
func ParseFreshness(s string) Freshness { return Freshness(indexOf(freshnessNames[:], s)) }

// Consistency is the consistency of a read. The zero value is strict.
type Consistency struct {
	Level Freshness // zero: FreshnessStrict
	// Epoch and Revision belong to FreshnessAtLeast: the read is answered from a state that holds
	// this revision. They come from an earlier answer. Zero with every other level.
	Epoch, Revision uint64
}

// AtLeast is the consistency of a read that must see a revision of an epoch.
func AtLeast(epoch, revision uint64) Consistency {
	return Consistency{Level: FreshnessAtLeast, Epoch: epoch, Revision: revision}
}

// Strict reports whether the read must see everything acknowledged before it.
func (c Consistency) Strict() bool { return c.Level == 0 || c.Level == FreshnessStrict }

// String returns the form that ParseConsistency reads.
func (c Consistency) String() string {
	switch {
	case c.Strict():
		return FreshnessStrict.String()
	case c.Level == FreshnessAtLeast:
		return fmt.Sprintf("%s:%d.%d", c.Level, c.Epoch, c.Revision)
	}
	return c.Level.String()
}

const consistencyForms = "strict, eventual or at-least:<epoch>.<revision>, such as at-least:3.1042"

// ParseConsistency reads strict, eventual or at-least:<epoch>.<revision>. An empty text is strict.
func ParseConsistency(s string) (Consistency, error) {
	word, at, has := strings.Cut(s, ":")
	level := ParseFreshness(word)
	if s == "" {
		return Consistency{}, nil
	}
	if level == 0 || has != (level == FreshnessAtLeast) {
		return Consistency{}, Invalid("consistency", "%.60q is not known; give %s", s, consistencyForms)
	}
	c := Consistency{Level: level}
	if !has {
		return c, nil
	}
	v, err := ParseVersion(at)
	c.Epoch, c.Revision = v.Epoch, v.Revision
	if err != nil {
		return Consistency{}, Invalid(
			"consistency", "%.60q names no epoch and revision; give %s", s, consistencyForms,
		)
	}
	return c, c.Validate()
}

// Validate reports the first field that is wrong.
func (c Consistency) Validate() error {
	if c.Level != 0 && !c.Level.Known() {
		return Invalid("consistency.level", "%d is not known; give %s", c.Level, consistencyForms)
	}
	if c.Level != FreshnessAtLeast && (c.Epoch != 0 || c.Revision != 0) {
		return Invalid("consistency", "is %s with an epoch or a revision; leave them out, or give at-least", c)
	}
	if c.Level == FreshnessAtLeast && c.Epoch == 0 {
		return Invalid("consistency.epoch", "is 0; give the epoch and the revision of an earlier answer")
	}
	return nil
}

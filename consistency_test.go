package plimsoll_test

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

func TestParseConsistencyReadsItsOwnText(t *testing.T) {
	for text, want := range map[string]plimsoll.Consistency{
		"":                {},
		"strict":          {Level: plimsoll.FreshnessStrict},
		"eventual":        {Level: plimsoll.FreshnessEventual},
		"at-least:3.1042": plimsoll.AtLeast(3, 1042),
		"at-least:1.0":    plimsoll.AtLeast(1, 0),
	} {
		got, err := plimsoll.ParseConsistency(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v (%v), want %+v", text, got, err, want)
		}
		if text != "" && got.String() != text {
			t.Errorf("%q prints as %q", text, got)
		}
	}
}

func TestAConsistencyThatIsNoneIsRefusedWithTheForms(t *testing.T) {
	for text, field := range map[string]string{
		"fresh": "consistency", "strict:1.2": "consistency", "at-least": "consistency", "at-least:": "consistency",
		"at-least:7": "consistency", "at-least:1.x": "consistency", "at-least:-1.2": "consistency",
		"at-least:0.5": "consistency.epoch", "at-least:1.18446744073709551616": "consistency",
	} {
		_, err := plimsoll.ParseConsistency(text)
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.HasPrefix(err.Error(), field+": ") {
			t.Errorf("%q: %v, want an error of %s", text, err, field)
		}
	}
	for _, c := range []plimsoll.Consistency{
		{Epoch: 1}, {Level: plimsoll.FreshnessEventual, Revision: 1}, {Level: 99}, {Level: plimsoll.FreshnessAtLeast},
	} {
		if err := c.Validate(); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestALaterEpochHoldsEveryRevisionOfAnEarlierOne(t *testing.T) {
	at := func(epoch, revision uint64) plimsoll.Version {
		return plimsoll.Version{Epoch: epoch, Revision: revision}
	}
	for _, test := range []struct {
		have, want plimsoll.Version
		holds      bool
	}{
		{at(1, 5), at(1, 5), true},
		{at(1, 6), at(1, 5), true},
		{at(1, 4), at(1, 5), false},
		{at(2, 1), at(1, 5), true},
		{at(1, 9), at(2, 1), false},
	} {
		if got := test.have.Holds(test.want); got != test.holds {
			t.Errorf("%s holds %s: %v, want %v", test.have, test.want, got, test.holds)
		}
	}
}

package plimsoll_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/lint"
)

// enum is an enumeration, as a program uses it.
type enum struct {
	word  func(number int64) string
	known func(number int64) bool
	parse func(word string) (number int64, ok bool) // nil: its words are never parsed
}

type enumeration interface {
	~uint8 | ~uint16
	Known() bool
	String() string
}

func written[T enumeration]() enum {
	return enum{
		word:  func(number int64) string { return T(number).String() },
		known: func(number int64) bool { return T(number).Known() },
	}
}

func read[T enumeration](parse func(string) (T, bool)) enum {
	e := written[T]()
	e.parse = func(word string) (int64, bool) {
		x, ok := parse(word)
		return int64(x), ok
	}
	return e
}

// orZero adapts a parser that returns zero for an unknown word.
func orZero[T enumeration](parse func(string) T) func(string) (T, bool) {
	return func(word string) (T, bool) {
		x := parse(word)
		return x, x != 0
	}
}

// enums lists all enumerations of the vocabulary.
var enums = map[string]enum{
	"ArchiveMode":  written[plimsoll.ArchiveMode](),
	"ChangeDetail": written[plimsoll.ChangeDetail](),
	"ChangeType":   written[plimsoll.ChangeType](),
	"Class":        read(plimsoll.ParseClass),
	"Code":         read(func(word string) (plimsoll.Code, bool) { return plimsoll.ParseCode(word), true }),
	"EventSubject": read(plimsoll.ParseEventSubject),
	"EventType":    written[plimsoll.EventType](),
	"Freshness":    read(orZero(plimsoll.ParseFreshness)),
	"JobState":     read(orZero(plimsoll.ParseJobState)),
	"NodeMode":     read(orZero(plimsoll.ParseNodeMode)),
	"PolicyKind":   read(orZero(plimsoll.ParsePolicyKind)),
	"QOSEventKind": written[plimsoll.QOSEventKind](),
	"RequestCause": written[plimsoll.RequestCause](),
	"ReservoirUse": read(plimsoll.ParseReservoirUse),
	"RetryKind":    read(plimsoll.ParseRetryKind),
	"Scope":        read(orZero(plimsoll.ParseScope)),
	"StepReason":   written[plimsoll.StepReason](),
	"Strategy":     read(plimsoll.ParseStrategy),
	"TaskResult":   read(plimsoll.ParseTaskResult),
	"TaskState":    read(orZero(plimsoll.ParseTaskState)),
	"WaitCode":     written[plimsoll.WaitCode](),
}

// wordless lists values without a word: they mean that nothing is set.
var wordless = []string{"CauseNone", "ClassUnset", "ResultNone", "SubjectNone", "WaitNone"}

// TestEveryEnumIsComplete reads the enumerations from the source, so a value that was added only
// there is found. Each enumeration has a sentinel behind its last value. Each value is known, and
// has a word of its own that is parsed back to the value. Numbers beyond the sentinel are not
// known.
func TestEveryEnumIsComplete(t *testing.T) {
	src, err := lint.TypeCheck(".", ".")
	if err != nil {
		t.Fatal(err)
	}
	found := src.Enums()
	if len(found) != len(enums) {
		t.Errorf("the source has %d enumerations, and the table enums of this test %d", len(found), len(enums))
	}
	for _, e := range found {
		x, ok := enums[e.Type]
		if !ok {
			t.Errorf("%s of %s is missing in the table enums of this test; give it the methods Known and String "+
				"and add it", e.Type, e.File)
			continue
		}
		last := e.Values[len(e.Values)-1]
		if sparse := e.Type == "ChangeDetail"; !sparse && e.Sentinel.Number != last.Number+1 {
			t.Errorf("%s: the sentinel %s = %d does not follow %s = %d; move it to the end of the constants in %s",
				e.Type, e.Sentinel.Name, e.Sentinel.Number, last.Name, last.Number, e.File)
		}
		checkWords(t, &e, x)
		for _, number := range []int64{last.Number + 1, 255} {
			if want := fmt.Sprintf(
				"unknown(%d)", number,
			); x.known(number) || x.word(number) != want && e.Type != "Code" {
				t.Errorf("%s(%d) is known or prints as %q, want %q", e.Type, number, x.word(number), want)
			}
		}
	}
}

func checkWords(t *testing.T, e *lint.Enum, x enum) {
	t.Helper()
	words := map[string]string{}
	for _, v := range e.Values {
		word := x.word(v.Number)
		if !x.known(v.Number) {
			t.Errorf("%s: %s = %d is not Known; mend the method in %s", e.Type, v.Name, v.Number, e.File)
		}
		if slices.Contains(wordless, v.Name) {
			continue
		}
		if word == "" || word == fmt.Sprintf("unknown(%d)", v.Number) {
			t.Errorf("%s: %s = %d has no word; add it to the words of %s in %s",
				e.Type, v.Name, v.Number, e.Type, e.File)
			continue
		}
		if other, taken := words[word]; taken {
			t.Errorf("%s: %q is the word of %s and of %s", e.Type, word, other, v.Name)
		}
		words[word] = v.Name
		if x.parse == nil {
			continue
		}
		if number, ok := x.parse(word); !ok || number != v.Number {
			t.Errorf("%s: %q, the word of %s, is read as %d (%t)", e.Type, word, v.Name, number, ok)
		}
	}
}

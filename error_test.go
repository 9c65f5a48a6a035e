package plimsoll_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// wantInvalid wants a CodeInvalid error about a field, with a text in its message. An empty field
// means no error.
func wantInvalid(t *testing.T, err error, field, text string) {
	t.Helper()
	if field == "" {
		if err != nil {
			t.Errorf("got %v, want no error", err)
		}
		return
	}
	var e *plimsoll.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an error about %s", err, field)
	}
	if e.Code != plimsoll.CodeInvalid || e.Field != field || !strings.Contains(e.Msg, text) {
		t.Errorf("got %s error about %q: %q; want one about %q with %q", e.Code, e.Field, e.Msg, field, text)
	}
}

func TestErrorPrintsWhatItHolds(t *testing.T) {
	for _, tc := range []struct {
		err  plimsoll.Error
		want string
	}{
		{
			plimsoll.Error{Op: "submit job", Field: "queue", Msg: "is no leaf", Err: fs.ErrNotExist},
			"submit job: queue: is no leaf: file does not exist",
		},
		{plimsoll.Error{Field: "queue", Msg: "is no leaf"}, "queue: is no leaf"},
		{plimsoll.Error{Op: "submit job", Err: fs.ErrNotExist}, "submit job: file does not exist"},
		{plimsoll.Error{Code: plimsoll.CodeNotFound}, "not_found"},
		{plimsoll.Error{}, "internal"},
		{*plimsoll.Errorf(plimsoll.CodeNotFound, "job %s is not known", "a"), "job a is not known"},
		{*plimsoll.Invalid("count", "is %d", -1), "count: is -1"},
	} {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestCodeOf(t *testing.T) {
	inner := plimsoll.Errorf(plimsoll.CodeConflict, "the job has ended")
	for _, tc := range []struct {
		name string
		err  error
		want plimsoll.Code
	}{
		{"an error of ours", inner, plimsoll.CodeConflict},
		{"an error of ours, wrapped", fmt.Errorf("scale job: %w", inner), plimsoll.CodeConflict},
		{"the outermost counts", &plimsoll.Error{Code: plimsoll.CodeUnavailable, Err: inner}, plimsoll.CodeUnavailable},
		{"what is not ours is internal", fs.ErrNotExist, plimsoll.CodeInternal},
		{"no error has no other code", nil, plimsoll.CodeInternal},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := plimsoll.CodeOf(tc.err); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	if cause := (&plimsoll.Error{Err: fs.ErrNotExist}); !errors.Is(cause, fs.ErrNotExist) {
		t.Error("the cause is not found through Unwrap")
	}
}

func TestCodesHaveWords(t *testing.T) {
	seen := map[string]bool{}
	for code := plimsoll.CodeInternal; code <= plimsoll.CodeOutcomeUnknown; code++ {
		word := code.String()
		if seen[word] {
			t.Errorf("%q stands for two codes", word)
		}
		seen[word] = true
		if got := plimsoll.ParseCode(word); got != code {
			t.Errorf("%q is read back as %s", word, got)
		}
	}
	for _, unknown := range []string{"", "Invalid", "no such code"} {
		if got := plimsoll.ParseCode(unknown); got != plimsoll.CodeInternal {
			t.Errorf("%q is read as %s, want internal", unknown, got)
		}
	}
	if got := plimsoll.Code(200).String(); got != "internal" {
		t.Errorf("an unknown code prints as %q", got)
	}
}

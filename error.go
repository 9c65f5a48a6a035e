package plimsoll

import (
	"errors"
	"fmt"
	"strings"
)

// Code says what kind of thing went wrong, in the same words over RPC, HTTP and the command line.
type Code uint8

// The codes. What is none of these is CodeInternal, and its text goes to the log and not to the
// caller.
const (
	CodeInternal        Code = iota // a fault of ours
	CodeInvalid                     // the input is wrong; Field names where
	CodeNotFound                    // no such object
	CodeAlreadyExists               // the id is taken
	CodeConflict                    // the object is not in a state that allows this
	CodeUnavailable                 // no leader, or not connected to it; nothing was done: try again
	CodeExhausted                   // a bound was reached; try again later
	CodeDenied                      // the caller may not do this
	CodeStale                       // an older incarnation or leader speaks
	CodeDeadline                    // the time allowed ran out
	CodeCanceled                    // the caller went away
	CodeCorrupt                     // stored data cannot be read
	CodeAlreadyRunning              // another process owns the directory or the address
	CodeUnimplemented               // the peer does not know this call
	CodeUnauthenticated             // the caller has not said by a token that it may call
	CodeOutcomeUnknown              // the change was made or not; only with its token it can be tried again

	numCodes
)

// NumCodes is one more than the highest code, for tables.
const NumCodes = int(numCodes)

var codeNames = [numCodes]string{
	"internal", "invalid", "not_found", "already_exists", "conflict", "unavailable", "exhausted", "denied", "stale",
	"deadline",
	"canceled", "corrupt", "already_running", "unimplemented", "unauthenticated", "outcome_unknown",
}

// Known reports whether this version has the code.
func (c Code) Known() bool { return c < numCodes }

// String returns the code's word, such as "not_found"; that of a code which is not known is
// "internal", as what is not known is no business of the caller's.
func (c Code) String() string {
	if !c.Known() {
		c = CodeInternal
	}
	return codeNames[c]
}

// ParseCode is the inverse of String; an unknown word is CodeInternal.
func ParseCode(s string) Code {
	for i, name := range codeNames {
		if name == s {
			return Code(i)
		}
	}
	return CodeInternal
}

// Error is an error that a caller can act on.
type Error struct {
	Code  Code
	Op    string // what was being done, e.g. "submit job"; may be empty
	Field string // the input field that is wrong, e.g. "groups[0].resources.cpu"; may be empty
	Msg   string // what is wrong and what to do about it
	Err   error  // the cause; may be nil
}

// Error prints "op: field: message: cause", leaving out what is empty.
func (e *Error) Error() string {
	parts := make([]string, 0, 4)
	for _, p := range []string{e.Op, e.Field, e.Msg} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	if len(parts) == 0 {
		return e.Code.String()
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of the first Error in err's chain, and CodeInternal if there is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// Errorf makes an Error with a code and a message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// Within puts a field in front of the field that an Error is about. Any other error stays as it is.
func Within(field string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	inner := *e
	if inner.Field != "" {
		field += "." + inner.Field
	}
	inner.Field = field
	return &inner
}

// Invalid makes a CodeInvalid error about a field.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Field: field, Msg: fmt.Sprintf(format, args...)}
}

package plimsoll

import (
	"errors"
	"fmt"
	"strings"
)

// Code is the kind of an error. Its words are the same over RPC, HTTP and the command line.
type Code uint8

// The codes. An error of no other kind is CodeInternal; its text goes to the log and not to the
// caller.
const (
	CodeInternal        Code = iota // a fault of Plimsoll itself
	CodeInvalid                     // the input is wrong; Field names the input field
	CodeNotFound                    // no such object
	CodeAlreadyExists               // the id is taken
	CodeConflict                    // the object is not in a state that allows this
	CodeUnavailable                 // no leader, or not connected to it; nothing was done: try again
	CodeExhausted                   // a bound was reached; try again later
	CodeDenied                      // the caller may not do this
	CodeStale                       // the request comes from an older incarnation or leader
	CodeDeadline                    // the time allowed ran out
	CodeCanceled                    // the caller gave up
	CodeCorrupt                     // stored data cannot be read
	CodeAlreadyRunning              // another process owns the directory or the address
	CodeUnimplemented               // the peer does not know this call
	CodeUnauthenticated             // the caller gave no valid token
	CodeOutcomeUnknown              // the change was made or not; only with its token can it be tried again

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

// String returns the code's word, such as "not_found". An unknown code is "internal": it tells the
// caller nothing that it could act on.
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

// Error is an error that a caller can act on. Msg says how the input or the situation must change.
type Error struct {
	Code  Code
	Op    string // the operation, such as "submit job"; may be empty
	Field string // the input field that is wrong, such as "groups[0].resources.cpu"; may be empty
	Msg   string // the fault and the way to mend it
	Err   error  // the cause; may be nil
}

// Error prints "op: field: message: cause" without the empty parts.
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

// Within puts a field in front of the Field of an Error. Any other error stays as it is.
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

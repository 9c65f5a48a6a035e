package config

import (
	"errors"
	"strconv"

	"github.com/plimsoll-dev/plimsoll"
)

// Places holds the file and lines of each policy. The key is PolicyRef.String.
type Places map[string]place

// place is the location of one policy. lines maps fields to lines; the key "" is the policy
// itself.
type place struct {
	file  string
	lines map[string]int
}

// Locate puts the file and the line in front of errors made by plimsoll.InPolicy. Such errors come
// from code that has only the policies: a server, or a check against a registry. Other errors are
// returned unchanged.
func (p Places) Locate(err error) error {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		located := several.Unwrap()
		for i := range located {
			located[i] = p.Locate(located[i])
		}
		return errors.Join(located...)
	}
	var e *plimsoll.Error
	if !errors.As(err, &e) {
		return err
	}
	at, ok := p[e.Op]
	if !ok {
		return err
	}
	told := *e
	d := decoder{lines: at.lines}
	told.Op = at.file + ":" + strconv.Itoa(d.lineOf(e.Field)) + ": " + e.Op
	return &told
}

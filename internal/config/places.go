package config

import (
	"errors"
	"strconv"

	"github.com/plimsoll-dev/plimsoll"
)

// Places says where the policies of files stand, by what PolicyRef.String prints.
type Places map[string]place

// place is where one policy stands. lines has the line of each field, and of the policy under "".
type place struct {
	file  string
	lines map[string]int
}

// Locate puts the file and the line in front of errors that plimsoll.InPolicy has made, which are
// found by somebody who has only the policies: a server, or a check against a registry. Others stay
// as they are.
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

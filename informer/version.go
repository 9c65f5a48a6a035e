package informer

import "github.com/plimsoll-dev/plimsoll"

// Version is a place in a source's order of changes. The zero value is before every change.
type Version = plimsoll.Version

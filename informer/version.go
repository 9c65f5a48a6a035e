package informer

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// Version is a place in a source's order of changes. An epoch is one leader's term, and revisions
// count within it. The zero value is before every change.
type Version struct {
	Epoch, Revision uint64
}

// Compare returns -1 if v is before other, 0 if they are the same place, and 1 if v is after it.
func (v Version) Compare(other Version) int {
	return cmp.Or(cmp.Compare(v.Epoch, other.Epoch), cmp.Compare(v.Revision, other.Revision))
}

// Before reports whether v is before other.
func (v Version) Before(other Version) bool { return v.Compare(other) < 0 }

// IsZero reports whether v is before every change.
func (v Version) IsZero() bool { return v == Version{} }

// String returns the epoch and the revision with a point between them, such as "3.1044".
func (v Version) String() string {
	return strconv.FormatUint(v.Epoch, 10) + "." + strconv.FormatUint(v.Revision, 10)
}

// ParseVersion is the inverse of String. It accepts no other spelling: no sign, no leading zero.
func ParseVersion(s string) (Version, error) {
	epoch, revision, found := strings.Cut(s, ".")
	var v Version
	var errEpoch, errRevision error
	v.Epoch, errEpoch = strconv.ParseUint(epoch, 10, 64)
	v.Revision, errRevision = strconv.ParseUint(revision, 10, 64)
	if !found || errEpoch != nil || errRevision != nil || v.String() != s {
		return Version{}, plimsoll.Invalid("version", "%.50q is not an epoch and a revision, as in 3.1044", s)
	}
	return v, nil
}

package plimsoll

import (
	"cmp"
	"strconv"
	"strings"
)

// Version is a place in the order of all changes of a cluster. The zero value is before every
// change.
type Version struct {
	Epoch    uint64 // of the leader that made the change; each leader has a higher one
	Revision uint64 // of the last change; it counts on from leader to leader
}

// Holds reports whether a state of this version holds every stored change of another. A leader
// begins with everything that earlier ones had acknowledged, so a later epoch holds an earlier one.
func (v Version) Holds(other Version) bool { return !v.Before(other) }

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
		return Version{}, Invalid("version", "%.50q is not an epoch and a revision, as in 3.1044", s)
	}
	return v, nil
}

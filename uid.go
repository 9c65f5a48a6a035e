package plimsoll

import (
	"encoding/base32"
	"encoding/binary"
	"strings"
)

// UID names one lifetime of a job's id: two jobs that had the same id one after the other have two
// uids. The time of the submit comes first in it, so uids sort as the submits do.
type UID [16]byte

// UIDText is the length of a uid in text.
const UIDText = 26

// uidEncoding keeps the order of the bytes in the text.
var uidEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// MakeUID returns the uid of a job that was submitted at a time, in Unix nanoseconds, in the batch
// with a revision. Within a batch each submit has a time of its own.
func MakeUID(submitted int64, revision uint64) UID {
	var u UID
	binary.BigEndian.PutUint64(u[:8], uint64(submitted))
	binary.BigEndian.PutUint64(u[8:], revision)
	return u
}

// String returns the uid in 26 digits and lower-case letters, which sort as the uids do.
func (u UID) String() string { return uidEncoding.EncodeToString(u[:]) }

// Text returns the text of String, and an empty one for no uid.
func (u UID) Text() string {
	if u.IsZero() {
		return ""
	}
	return u.String()
}

// Append appends the text of String to dst.
func (u UID) Append(dst []byte) []byte { return uidEncoding.AppendEncode(dst, u[:]) }

// ParseUID is the inverse of String. It takes no other text for a uid than String gives.
func ParseUID(s string) (UID, error) {
	var u UID
	if len(s) == UIDText {
		if _, err := uidEncoding.Decode(u[:], []byte(s)); err == nil && u.String() == s {
			return u, nil
		}
	}
	return UID{}, Invalid("uid", "%q is not a uid; it has %d digits and letters from a to v", Shorten(s), UIDText)
}

// Submitted returns the time of the submit, in Unix nanoseconds.
func (u UID) Submitted() int64 { return int64(binary.BigEndian.Uint64(u[:8])) }

// Revision returns the revision of the batch of the submit. It is 0 for a job that was submitted
// before uids existed.
func (u UID) Revision() uint64 { return binary.BigEndian.Uint64(u[8:]) }

// IsZero reports whether there is no uid.
func (u UID) IsZero() bool { return u == UID{} }

// uidMark stands between an id and a uid in the name of a lifetime. No id has it.
const uidMark = "~"

// LifetimeName names one lifetime of the id of a job, or a task of it: the id, ~ and the uid of the
// job. Without a uid it is the id.
func LifetimeName(id string, uid UID) string {
	if uid.IsZero() {
		return id
	}
	return id + uidMark + uid.String()
}

// SplitLifetimeName is the inverse of LifetimeName. It does not check the id.
func SplitLifetimeName(name string) (id string, uid UID, err error) {
	id, text, marked := strings.Cut(name, uidMark)
	if marked {
		uid, err = ParseUID(text)
	}
	return id, uid, err
}

package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/plimsoll-dev/plimsoll"
)

// UIDFromText is the inverse of UID.Text for a message. Any other text becomes zero.
func UIDFromText(s string) plimsoll.UID {
	u, err := plimsoll.ParseUID(s)
	if err != nil {
		return plimsoll.UID{}
	}
	return u
}

func appendUID(dst []byte, number uint64, u plimsoll.UID) []byte {
	if u.IsZero() {
		return dst
	}
	dst = protowire.AppendVarint(dst, number<<3|bytesType)
	return u.Append(protowire.AppendVarint(dst, plimsoll.UIDText))
}

func decodeUID(b []byte) (plimsoll.UID, error) {
	if len(b) == 0 {
		return plimsoll.UID{}, nil
	}
	return plimsoll.ParseUID(string(b)) //nolint:wrapcheck // the caller says in which record it stands
}

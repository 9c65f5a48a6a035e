package etcd

import (
	"context"
	"encoding/binary"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/plimsoll-dev/plimsoll"
)

// MaxChangesBytes bounds the lists of changed keys that are stored. The oldest are removed when
// there are more. A standby that needs an older one loads everything.
const MaxChangesBytes = 4 << 20

const (
	// changesShare is the part of MaxChangesBytes that one list may have. After a transaction with
	// a longer one, the lists begin anew.
	changesShare = 16
	listBytes    = 64 // what a list takes beside its value
)

// changes knows the stored lists of changed keys. Invariant: each begins at the revision at which
// the one before it ends.
type changes struct {
	lists []changesList // the oldest first
	bytes int
}

type changesList struct {
	revision uint64 // of the last batch in it
	bytes    int
}

// list returns the list of a request's keys, in its stored form: the revision before, then each key
// behind its length. It is empty if there is none.
func (c *changes) list(before uint64, r *request) string {
	if !r.record {
		return ""
	}
	size := 8
	for i := range r.changes {
		size += 2 + len(r.changes[i].key)
	}
	if size > MaxChangesBytes/changesShare {
		return ""
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 0, size), before)
	for i := range r.changes {
		if key := r.changes[i].key; key[0] == recordPrefix[0] {
			b = binary.BigEndian.AppendUint16(b, uint16(len(key)))
			b = append(b, key...)
		}
	}
	return string(b)
}

func decodeList(key string, value []byte) (before uint64, keys []string, err error) {
	broken := plimsoll.Errorf(plimsoll.CodeCorrupt, "the list of changes %q in etcd has an unknown form", key)
	if len(value) < 8 {
		return 0, nil, broken
	}
	before = binary.BigEndian.Uint64(value)
	for rest := value[8:]; len(rest) > 0; {
		if len(rest) < 2 {
			return 0, nil, broken
		}
		n := int(binary.BigEndian.Uint16(rest))
		if len(rest) < 2+n {
			return 0, nil, broken
		}
		keys = append(keys, string(rest[2:2+n]))
		rest = rest[2+n:]
	}
	return before, keys, nil
}

// outgrown returns how many of the oldest lists must go when one of so many bytes is added.
func (c *changes) outgrown(bytes int) int {
	n, left := 0, c.bytes+bytes+listBytes
	for ; n < len(c.lists) && left > MaxChangesBytes; n++ {
		left -= c.lists[n].bytes
	}
	return n
}

// operations returns the operations that store a list, and remove the oldest ones. An empty list
// removes all.
func (c *changes) operations(s *Store, revision uint64, list string) []clientv3.Op {
	if list == "" {
		return []clientv3.Op{clientv3.OpDelete(s.key(changesPrefix), clientv3.WithPrefix())}
	}
	ops := []clientv3.Op{clientv3.OpPut(s.key(revisionKey(changesPrefix, revision)), list)}
	if n := c.outgrown(len(list)); n > 0 {
		ops = append(ops, clientv3.OpDelete(
			s.key(changesPrefix), clientv3.WithRange(s.key(revisionKey(changesPrefix, c.lists[n-1].revision+1))),
		))
	}
	return ops
}

// applied notes that the operations of a request were applied.
func (c *changes) applied(r *request, list string) {
	switch {
	case !r.record:
		return
	case list == "":
		*c = changes{}
		return
	}
	for range c.outgrown(len(list)) {
		c.bytes -= c.lists[0].bytes
		c.lists = c.lists[1:]
	}
	c.lists = append(c.lists, changesList{r.after.revision, len(list) + listBytes})
	c.bytes += len(list) + listBytes
}

// recover reads which lists are stored.
func (c *changes) recover(ctx context.Context, s *Store) error {
	*c = changes{}
	_, err := s.scan(ctx, changesPrefix, "", 0, func(key string, value []byte) error {
		revision, err := revisionOf(changesPrefix, key)
		if err != nil {
			return err
		}
		c.lists = append(c.lists, changesList{revision, len(value) + listBytes})
		c.bytes += len(value) + listBytes
		return nil
	})
	return err
}

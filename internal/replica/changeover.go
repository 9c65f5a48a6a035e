package replica

import (
	"bytes"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// changeover finds out what makes the records of tables those of another state, which come one
// after the other. It keeps only what differs in memory.
type changeover struct {
	olds [wire.NumKinds]oldRecords
	made []wire.Mutation // that make the records up to here those that came
}

// oldRecords are those of a kind that the tables have.
type oldRecords struct {
	cursor informer.Cursor[record] // at the first that may still come
	more   bool                    // there is one
	last   *string                 // key of the last that came; nil: none
}

func newChangeover(s *Snapshot) *changeover {
	c := &changeover{}
	for kind := range c.olds {
		o := &c.olds[kind]
		o.cursor = s.kinds[kind].Cursor()
		o.more = o.cursor.Next()
	}
	return c
}

// put takes the next record, of which it keeps the bytes. Those of a kind come in the order of
// their keys. differs is false if the tables have the record already.
func (c *changeover) put(m *wire.Mutation) (differs bool, err error) {
	o := &c.olds[m.Kind]
	if o.last != nil && m.Key <= *o.last {
		return false, plimsoll.Errorf(plimsoll.CodeCorrupt,
			"the record %q of kind %d came behind %q; run the same version on both", m.Key, m.Kind, *o.last)
	}
	o.last = &m.Key
	for ; o.more && o.cursor.Key() < m.Key; o.more = o.cursor.Next() {
		c.made = append(c.made, wire.Mutation{Kind: m.Kind, Key: o.cursor.Key()})
	}
	if o.more && o.cursor.Key() == m.Key {
		old := o.cursor.Object()
		o.more = o.cursor.Next()
		if bytes.Equal(old.value, m.Value) && old.node.String() == m.Node {
			return false, nil
		}
	}
	c.made = append(c.made, *m)
	return true, nil
}

// end returns what differs, when all records have come.
func (c *changeover) end() []wire.Mutation {
	for kind := range c.olds {
		for o := &c.olds[kind]; o.more; o.more = o.cursor.Next() {
			c.made = append(c.made, wire.Mutation{Kind: wire.Kind(kind), Key: o.cursor.Key()})
		}
	}
	return c.made
}

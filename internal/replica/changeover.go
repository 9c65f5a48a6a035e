package replica

import (
	"bytes"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Replacement makes tables whose records come in parts. If there are tables before, a record that
// these have too costs a comparison, and keeps its bytes and its place in each index; until the end
// only what differs is kept in memory.
type Replacement struct {
	tables *Tables // in the making
	was    *Tables // whose records they take over at the end; nil: none
	coming *changeover
}

// Replace begins tables. was are the tables before, or nil. They must not be changed meanwhile, and
// not be used any more after Complete.
func Replace(was *Tables) *Replacement {
	r := &Replacement{tables: NewTables(), was: was}
	if was == nil {
		r.tables.begin()
	} else {
		r.coming = newChangeover(was.Snapshot())
	}
	return r
}

// Tables returns the tables. They take events, and have no records before Complete.
func (r *Replacement) Tables() *Tables { return r.tables }

// Put takes a part of the records. No part may have keys of a kind that are not above those of the
// parts before. The bytes are kept if there are no tables before. After an error the Replacement
// must not be used.
func (r *Replacement) Put(puts []wire.Mutation) error {
	records, err := readEventRecords(puts)
	if err != nil {
		return err
	}
	if r.coming != nil {
		err = r.coming.part(puts)
	} else {
		err = r.tables.load(puts, r.tables.count)
	}
	if err == nil {
		r.tables.followEventRecords(records)
	}
	return err
}

// Complete gives the tables their records and their version. After an error the tables before are
// as they were.
func (r *Replacement) Complete(at plimsoll.Version, time int64) error {
	t := r.tables
	var err error
	if r.was == nil {
		err = t.complete()
	} else {
		t.kinds, t.edits, t.bytes, t.lacking = r.was.kinds, r.was.edits, r.was.bytes, r.was.lacking
		err = t.edit(r.coming.end(), t.count)
	}
	if err != nil {
		return err
	}
	t.events.Expire(time)
	t.epoch, t.revision, t.time = at.Epoch, at.Revision, time
	return nil
}

// changeover finds out what makes the records of tables those of another state.
type changeover struct {
	olds [wire.NumKinds]oldRecords
	made []wire.Mutation // that make the records up to here those that came
}

// oldRecords are those of a kind that the tables have.
type oldRecords struct {
	cursor informer.Cursor[record] // at the first that may still come
	more   bool                    // there is one
	came   bool                    // records of the other state have come
	last   string                  // key of the last of them
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

// part takes a part of the records of the other state.
func (c *changeover) part(puts []wire.Mutation) error {
	var byKind [wire.NumKinds][]*wire.Mutation
	for i := range puts {
		byKind[puts[i].Kind] = append(byKind[puts[i].Kind], &puts[i])
	}
	byKey := func(a, b *wire.Mutation) int { return strings.Compare(a.Key, b.Key) }
	for _, puts := range byKind {
		if !slices.IsSortedFunc(puts, byKey) { // most are
			slices.SortFunc(puts, byKey)
		}
		for _, put := range puts {
			if err := c.put(put); err != nil {
				return err
			}
		}
	}
	return nil
}

// put takes the next record of a kind. It keeps none of its bytes.
func (c *changeover) put(m *wire.Mutation) error {
	o := &c.olds[m.Kind]
	if o.came && m.Key <= o.last {
		return plimsoll.Errorf(plimsoll.CodeCorrupt,
			"the record %q of kind %d came behind %q; run the same version on both", m.Key, m.Kind, o.last)
	}
	o.came, o.last = true, m.Key
	for ; o.more && o.cursor.Key() < m.Key; o.more = o.cursor.Next() {
		c.made = append(c.made, wire.Mutation{Kind: m.Kind, Key: o.cursor.Key()})
	}
	if o.more && o.cursor.Key() == m.Key {
		old := o.cursor.Object()
		o.more = o.cursor.Next()
		if bytes.Equal(old.value, m.Value) && old.node.String() == m.Node {
			return nil
		}
	}
	own := *m
	own.Value = append([]byte{}, m.Value...) // one record must not keep the bytes of a part in memory
	c.made = append(c.made, own)
	return nil
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

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
// these have too costs a comparison, and keeps its bytes and its place in each index. Until the end
// only the others are kept in memory.
type Replacement struct {
	tables *Tables // in the making
	was    *Tables // whose records they take over at the end; nil: none
	coming *changeover
	last   [wire.NumKinds]lastKey
}

// lastKey is the key of the last record of a kind that came.
type lastKey struct {
	came bool
	key  string
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

// Put takes a part of the records. The keys of a kind rise from part to part, and none comes twice.
// The bytes are kept if there are no tables before. After an error the Replacement must not be
// used.
func (r *Replacement) Put(puts []wire.Mutation) error {
	records, err := readEventRecords(puts)
	if err != nil {
		return err
	}
	ordered, err := r.inOrder(puts)
	if err != nil {
		return err
	}
	for _, put := range ordered {
		if r.coming != nil {
			r.coming.put(put)
		} else if err := r.tables.put(put); err != nil {
			return err
		}
	}
	r.tables.followEventRecords(records)
	return nil
}

// inOrder returns the records of a part by kind and key. It returns an error if a key is not above
// those of the parts before.
func (r *Replacement) inOrder(puts []wire.Mutation) (ordered []*wire.Mutation, err error) {
	var byKind [wire.NumKinds][]*wire.Mutation
	for i := range puts {
		byKind[puts[i].Kind] = append(byKind[puts[i].Kind], &puts[i])
	}
	ordered = make([]*wire.Mutation, 0, len(puts))
	byKey := func(a, b *wire.Mutation) int { return strings.Compare(a.Key, b.Key) }
	for kind, puts := range byKind {
		if !slices.IsSortedFunc(puts, byKey) { // most are
			slices.SortFunc(puts, byKey)
		}
		last := &r.last[kind]
		for _, put := range puts {
			if last.came && put.Key <= last.key {
				return nil, plimsoll.Errorf(plimsoll.CodeCorrupt,
					"the record %q of kind %d came behind %q, and not in the order of the keys", put.Key, kind, last.key)
			}
			last.came, last.key = true, put.Key
		}
		ordered = append(ordered, puts...)
	}
	return ordered, nil
}

// Complete gives the tables their records and their version. After an error the tables before are
// as they were.
func (r *Replacement) Complete(at plimsoll.Version, time int64) error {
	t := r.tables
	var err error
	if r.was == nil {
		err = t.complete()
	} else {
		err = r.takeOver(r.coming.end())
	}
	if err != nil {
		return err
	}
	t.events.Expire(time)
	t.epoch, t.revision, t.time = at.Epoch, at.Revision, time
	return nil
}

// takeOver gives the tables the records of those before, with the mutations that differ. If these
// are most of the records, it costs less to fill the tables.
func (r *Replacement) takeOver(made []wire.Mutation) error {
	t := r.tables
	if len(made) <= r.coming.same {
		t.kinds, t.edits, t.bytes, t.lacking = r.was.kinds, r.was.edits, r.was.bytes, r.was.lacking
		return t.edit(made, t.count)
	}
	t.begin()
	if err := r.coming.changed(made, t.put); err != nil {
		return err
	}
	return t.complete()
}

// changeover finds the mutations that make the records of tables those of another state.
type changeover struct {
	was  *Snapshot
	olds [wire.NumKinds]oldRecords
	same int // records that both have
}

// oldRecords are those of a kind that the tables have.
type oldRecords struct {
	cursor informer.Cursor[record] // at the first that may still come
	more   bool                    // there is one
	made   []wire.Mutation         // that make those in front of it the other state's, by key
}

func newChangeover(s *Snapshot) *changeover {
	c := &changeover{was: s}
	for kind := range c.olds {
		o := &c.olds[kind]
		o.cursor = s.kinds[kind].Cursor()
		o.more = o.cursor.Next()
	}
	return c
}

// put takes the next record of a kind. It keeps none of its bytes.
func (c *changeover) put(m *wire.Mutation) {
	o := &c.olds[m.Kind]
	for o.more && o.cursor.Key() < m.Key {
		o.remove(m.Kind)
	}
	if o.more && o.cursor.Key() == m.Key {
		old := o.cursor.Object()
		o.more = o.cursor.Next()
		if bytes.Equal(old.value, m.Value) && old.node.String() == m.Node {
			c.same++
			return
		}
	}
	own := *m
	own.Value = append([]byte{}, m.Value...) // one record must not keep the bytes of a part in memory
	o.made = append(o.made, own)
}

// remove removes the record at the cursor, which the other state does not have.
func (o *oldRecords) remove(kind wire.Kind) {
	o.made = append(o.made, wire.Mutation{Kind: kind, Key: o.cursor.Key()})
	o.more = o.cursor.Next()
}

// end returns the mutations, by kind and key, when all records have come.
func (c *changeover) end() (made []wire.Mutation) {
	for kind := range c.olds {
		o := &c.olds[kind]
		for o.more {
			o.remove(wire.Kind(kind))
		}
		made = append(made, o.made...)
	}
	return made
}

// changed calls put with each record of the other state, by kind and key. made comes from end.
func (c *changeover) changed(made []wire.Mutation, put func(*wire.Mutation) error) error {
	for kind := range wire.Kind(wire.NumKinds) {
		// until puts the made records of the kind whose keys are below a bound, or all of them.
		until := func(bound string, all bool) error {
			for len(made) > 0 && made[0].Kind == kind && (all || made[0].Key < bound) {
				m := &made[0]
				if made = made[1:]; m.Value == nil {
					continue
				}
				if err := put(m); err != nil {
					return err
				}
			}
			return nil
		}
		for key, old := range c.was.kinds[kind].All() {
			if err := until(key, false); err != nil {
				return err
			}
			if len(made) > 0 && made[0].Kind == kind && made[0].Key == key {
				continue
			}
			if err := put(&wire.Mutation{Kind: kind, Key: key, Value: old.value, Node: old.node.String()}); err != nil {
				return err
			}
		}
		if err := until("", true); err != nil {
			return err
		}
	}
	return nil
}

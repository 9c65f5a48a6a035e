package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Model is the expected content of a store, in the plainest form.
type Model struct {
	content Content
}

// Apply adds a batch to the model.
func (m *Model) Apply(b *wire.Batch) {
	m.content.Revision, m.content.Time = b.Revision, b.Time
	m.content.Records = slices.Clone(m.content.Records)
	for _, mut := range b.Mutations {
		if mut.Ephemeral {
			continue
		}
		at, found := slices.BinarySearchFunc(m.content.Records, mut, compareKey)
		switch {
		case mut.Value == nil && found:
			m.content.Records = slices.Delete(m.content.Records, at, at+1)
		case mut.Value != nil && found:
			m.content.Records[at].Value = string(mut.Value)
		case mut.Value != nil:
			m.content.Records = slices.Insert(m.content.Records, at, Record{mut.Kind, mut.Key, string(mut.Value)})
		}
	}
	if b.Events.Count > 0 {
		m.content.Chunks = append(slices.Clone(m.content.Chunks), chunkOf(b))
	}
}

// Trim removes the chunks of revisions below keep.
func (m *Model) Trim(keep uint64) {
	m.content.Chunks = slices.DeleteFunc(
		slices.Clone(m.content.Chunks), func(c Chunk) bool { return c.Revision < keep },
	)
	if len(m.content.Chunks) == 0 {
		m.content.Chunks = nil
	}
}

// Content returns the expected content of the store. It does not change later.
func (m *Model) Content() Content {
	c := m.content
	if len(c.Records) == 0 {
		c.Records = nil
	}
	return c
}

func compareKey(r Record, m wire.Mutation) int {
	if c := cmp.Compare(r.Kind, m.Kind); c != 0 {
		return c
	}
	return cmp.Compare(r.Key, m.Key)
}

// RandomBatch draws a batch that puts and deletes among few keys, so that keys repeat often. Each
// batch writes its revision into a record of its own, which reveals a torn batch.
func RandomBatch(rng *rand.Rand, epoch, revision uint64, valueSize int) *wire.Batch {
	b := batch(epoch, revision, put(wire.KindJobSpec, "revision", fmt.Sprint(revision)))
	for range rng.IntN(8) {
		m := wire.Mutation{
			Kind:      wire.Kind(1 + rng.IntN(wire.NumKinds-1)),
			Key:       fmt.Sprintf("key-%02d", rng.IntN(40)),
			Ephemeral: rng.IntN(8) == 0,
		}
		if rng.IntN(4) > 0 {
			m.Value = make([]byte, rng.IntN(valueSize+1))
			for i := range m.Value {
				m.Value[i] = byte(rng.Uint32())
			}
		}
		b.Mutations = append(b.Mutations, m)
	}
	if rng.IntN(3) > 0 {
		withEvents(b, revision*10, 1+rng.Uint64N(9))
	}
	return b
}

package replica

import (
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Historians are the registered historians by name. There are at most plimsoll.MaxHistorians. The
// leader's log of stored events and every ring follow the same records, so that all of them hold
// the same events back.
type Historians map[string]plimsoll.Historian

// Follow applies the records of historians among mutations.
func (h Historians) Follow(mutations []wire.Mutation) error {
	changed, err := historianRecords(mutations)
	if err == nil {
		h.apply(changed)
	}
	return err
}

// LackedFrom returns the id from which on one of them lacks events of an instance; ring.NoHold
// without any.
func (h Historians) LackedFrom(instance string) uint64 {
	from := uint64(ring.NoHold)
	for _, one := range h {
		from = min(from, one.LacksFrom(instance))
	}
	return from
}

// historianRecord is a changed record of a historian; a nil value: it was deleted.
type historianRecord struct {
	name  string
	value *plimsoll.Historian
}

func historianRecords(mutations []wire.Mutation) (changed []historianRecord, err error) {
	for i := range mutations {
		m := &mutations[i]
		if m.Kind != wire.KindHistorian {
			continue
		}
		next := historianRecord{name: m.Key}
		if m.Value != nil {
			value, err := wire.DecodeHistorian(m.Value)
			if err != nil {
				return nil, fmt.Errorf("read the historian %.*q: %w", plimsoll.MaxID, m.Key, err)
			}
			next.value = &value
		}
		changed = append(changed, next)
	}
	return changed, nil
}

func (h Historians) apply(changed []historianRecord) {
	for _, c := range changed {
		if c.value == nil {
			delete(h, c.name)
		} else {
			h[c.name] = *c.value
		}
	}
}

package gateway

import (
	"container/list"
	"sync"

	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// renderedOverhead is the approximate cost of an entry of jsonCache beside its texts.
const renderedOverhead = 256

// spared bounds the entries that one eviction spares because they were read.
const spared = 64

// jsonCache holds records in JSON, each rendered once a version. A record's bytes are never
// changed, so the place of the bytes is the version. An entry keeps them from being used again, and
// they count beside the text. When all entries together exceed the bound, entries are dropped in
// the order in which they came; one that was read meanwhile comes anew. So old versions of records
// go first. A lookup is O(1) and moves nothing.
type jsonCache struct {
	most int64 // bound on size

	mu struct {
		sync.Mutex
		size    int64
		entries map[*byte]*rendered // by the first byte of the record
		queue   list.List           // the entries as *rendered, the one that goes next at the back

		hits, misses, evicted uint64
	}
}

// version identifies a version of a record.
type version struct {
	kind  wire.Kind
	first *byte
	size  int
}

// rendered is a record in JSON. Invariant: nobody changes text.
type rendered struct {
	version
	text []byte
	read bool // since it came, or came anew
}

func (r *rendered) bytes() int64 { return int64(r.size) + int64(cap(r.text)) + renderedOverhead }

// find returns the JSON of a record, if it is known.
func (c *jsonCache) find(kind wire.Kind, data []byte) (text []byte, has bool) {
	if len(data) == 0 {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.mu.entries[&data[0]]
	if found == nil || found.size != len(data) || found.kind != kind {
		c.mu.misses++
		return nil, false
	}
	c.mu.hits++
	found.read = true
	return found.text, true
}

// keep adds the JSON of a record. A record that would take more than an eighth of the cache is not
// kept, nor one without bytes, which have no place.
func (c *jsonCache) keep(kind wire.Kind, data, text []byte) {
	if len(data) == 0 {
		return
	}
	added := &rendered{version: version{kind, &data[0], len(data)}, text: text}
	if added.bytes() > c.most/8 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.entries == nil {
		c.mu.entries = map[*byte]*rendered{}
	}
	if c.mu.entries[added.first] != nil { // another request has rendered it meanwhile
		return
	}
	c.mu.entries[added.first] = added
	c.mu.queue.PushFront(added)
	for c.mu.size += added.bytes(); c.mu.size > c.most; {
		c.evict()
	}
}

// evict drops an entry. It spares those that were read, as far as their number is bounded. The
// caller holds mu.
func (c *jsonCache) evict() {
	for range spared {
		at := c.mu.queue.Back()
		next := renderedOf(at)
		if !next.read {
			break
		}
		next.read = false
		c.mu.queue.MoveToFront(at)
	}
	at := c.mu.queue.Back()
	oldest := renderedOf(at)
	c.mu.queue.Remove(at)
	delete(c.mu.entries, oldest.first)
	c.mu.size -= oldest.bytes()
	c.mu.evicted++
}

func renderedOf(e *list.Element) *rendered {
	r, _ := e.Value.(*rendered) // the list holds nothing else
	return r
}

// jsonCacheStats are the numbers of a jsonCache for the metrics.
type jsonCacheStats struct {
	size                  int64
	hits, misses, evicted uint64
}

func (c *jsonCache) stats() jsonCacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return jsonCacheStats{c.mu.size, c.mu.hits, c.mu.misses, c.mu.evicted}
}

package gateway

import (
	"container/list"
	"sync"

	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// renderedOverhead is the approximate cost of an entry of jsonCache beside its texts.
const renderedOverhead = 256

// jsonCache holds records in JSON, each rendered once a version. A record's bytes are never
// changed, so the place of the bytes is the version. An entry keeps them from being used again, and
// they count beside the text. When all entries together exceed the bound, those that were not read
// for the longest time are dropped. So old versions of records go first. A lookup is O(1).
type jsonCache struct {
	most int64 // bound on size

	mu struct {
		sync.Mutex
		size    int64
		entries map[version]*list.Element // of *rendered
		recent  list.List                 // the entries, the one that was read last in front

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
}

func (r *rendered) bytes() int64 { return int64(r.size) + int64(cap(r.text)) + renderedOverhead }

// find returns the JSON of a record, if it is known.
func (c *jsonCache) find(kind wire.Kind, data []byte) (text []byte, has bool) {
	if len(data) == 0 {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found, has := c.mu.entries[version{kind, &data[0], len(data)}]
	if !has {
		c.mu.misses++
		return nil, false
	}
	c.mu.hits++
	c.mu.recent.MoveToFront(found)
	return renderedOf(found).text, true
}

// keep adds the JSON of a record. A record that would take more than an eighth of the cache is not
// kept, nor one without bytes, which have no place.
func (c *jsonCache) keep(kind wire.Kind, data, text []byte) {
	if len(data) == 0 {
		return
	}
	added := &rendered{version{kind, &data[0], len(data)}, text}
	if added.bytes() > c.most/8 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.entries == nil {
		c.mu.entries = map[version]*list.Element{}
	}
	if _, has := c.mu.entries[added.version]; has { // another request has rendered it meanwhile
		return
	}
	c.mu.entries[added.version] = c.mu.recent.PushFront(added)
	c.mu.size += added.bytes()
	for c.mu.size > c.most {
		oldest := renderedOf(c.mu.recent.Back())
		c.mu.recent.Remove(c.mu.recent.Back())
		delete(c.mu.entries, oldest.version)
		c.mu.size -= oldest.bytes()
		c.mu.evicted++
	}
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

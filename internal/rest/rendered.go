package rest

import (
	"bytes"
	"container/list"
	"slices"
	"sync"

	"github.com/plimsoll-dev/plimsoll"
)

const (
	// blockEvents is the number of events in a block of rendered events.
	blockEvents = 256
	// aheadEvents is the number of events that are rendered in one pass. A chunk of the ring is
	// unpacked from its start once a pass, and not once a block.
	aheadEvents = 16 * blockEvents
	// aheadBytes ends a pass early, behind a whole block.
	aheadBytes = 1 << 20
	// draftBytes bounds the memory for lines in the making that stays from one pass to the next.
	draftBytes = 256 << 10
)

// rendered holds events as lines of JSON, in blocks by id. Each event is rendered once for all
// batches and streams, for as long as its block is kept. When all blocks take more than most bytes,
// those that were not read for longest are dropped. It is safe for concurrent use.
type rendered struct {
	most int

	mu struct {
		sync.Mutex
		of     idSpace
		blocks map[uint64]*block
		used   list.List // of *block, the one that was read last in front
		bytes  int
		out    recordRenderer
		states objectStates
		draft  []byte // lines of the block that a pass is at; most draftBytes are kept for the next pass
	}
}

// idSpace names the events that ids stand for. The ids of an instance go on with another leader. A
// leader whose store was put back to an earlier state gives some of them a second time, though.
type idSpace struct {
	instance string
	epoch    uint64
}

// block holds the lines of consecutive events of one number, id/blockEvents. It grows at its end
// alone, and written bytes never change: what was read stays valid.
type block struct {
	number uint64
	first  uint64 // id of its first line
	text   []byte
	ends   []int // end of each line in text
	at     *list.Element
}

func (b *block) next() uint64 { return b.first + uint64(len(b.ends)) }

func (b *block) size() int { return cap(b.text) + 8*cap(b.ends) + 128 }

// span is a run of lines of one block.
type span struct {
	text  []byte // lines, each with a line break at its end
	ends  []int  // end of each line, counted from base
	base  int
	first uint64 // id of the first line
}

// next returns the id behind the last line.
func (s *span) next() uint64 { return s.first + uint64(len(s.ends)) }

// head returns the first lines of a span: as many as fit into a number of bytes, and at least one.
func (s *span) head(bytes int) span {
	n := len(s.ends)
	for n > 1 && s.ends[n-1]-s.base > bytes {
		n /= 2
	}
	return span{text: s.text[:s.ends[n-1]-s.base], ends: s.ends[:n], base: s.base, first: s.first}
}

// tail returns the lines from an id on.
func (s *span) tail(id uint64) span {
	n := int(id - s.first)
	if n == 0 {
		return *s
	}
	cut := s.ends[n-1]
	return span{text: s.text[cut-s.base:], ends: s.ends[n:], base: cut, first: id}
}

// lines returns the lines of at most count events from id on, up to the end of their block. The
// view must hold the event id.
func (r *rendered) lines(view *State, id, count uint64) (span, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of := view.space(); r.mu.of != of || r.mu.blocks == nil {
		r.mu.states.forget()
		r.mu.of, r.mu.blocks, r.mu.bytes = of, map[uint64]*block{}, 0
		r.mu.used.Init()
	}
	b := r.mu.blocks[id/blockEvents]
	if b == nil || id < b.first || id >= b.next() {
		if err := r.render(view, id); err != nil {
			return span{}, err
		}
		if b = r.mu.blocks[id/blockEvents]; b == nil || id < b.first || id >= b.next() {
			return span{}, plimsoll.Errorf(plimsoll.CodeCorrupt, "the ring does not hold the event %d", id)
		}
	}
	r.mu.used.MoveToFront(b.at)
	whole := span{text: b.text[:len(b.text):len(b.text)], ends: b.ends[:len(b.ends):len(b.ends)], first: b.first}
	s := whole.tail(id)
	if uint64(len(s.ends)) > count {
		s.ends = s.ends[:count]
		s.text = s.text[:s.ends[count-1]-s.base]
	}
	r.drop(b)
	return s, nil
}

// render renders the events of a pass that begins at an event, or behind what its block has.
func (r *rendered) render(view *State, id uint64) error {
	if b := r.mu.blocks[id/blockEvents]; b != nil && id >= b.first {
		if low, _, _ := view.Range(); low > b.next() {
			r.forget(b) // what follows its lines is gone
		} else {
			id = b.next()
		}
	}
	r.mu.out.begin()
	r.mu.states.begin(view.Records)
	defer r.mu.states.begin(nil)
	var b *block
	made, draft := 0, r.mu.draft[:0]
	err := view.Batch(id, aheadEvents-id%blockEvents, func(id uint64, ev *plimsoll.Event) bool {
		if b == nil || b.number != id/blockEvents {
			r.grow(b, draft)
			b, draft = r.blockFor(id), draft[:0]
		}
		if id < b.next() { // rendered by an earlier pass
			return true
		}
		before := len(draft)
		draft = append(r.mu.out.append(draft, ev, r.mu.states.of(ev)), '\n')
		b.ends = append(b.ends, len(b.text)+len(draft))
		made += len(draft) - before
		return made < aheadBytes || b.next()%blockEvents != 0
	})
	r.grow(b, draft)
	if r.mu.draft = draft; cap(draft) > draftBytes {
		r.mu.draft = nil
	}
	return err //nolint:wrapcheck // the caller knows the ids
}

// blockFor returns the block that takes the line of an event next, or has it.
func (r *rendered) blockFor(id uint64) *block {
	b := r.mu.blocks[id/blockEvents]
	if b != nil && id >= b.first && id <= b.next() {
		return b
	}
	if b != nil {
		r.forget(b)
	}
	b = &block{number: id / blockEvents, first: id, ends: make([]int, 0, blockEvents)}
	b.at = r.mu.used.PushFront(b)
	r.mu.blocks[b.number] = b
	r.mu.bytes += b.size()
	return b
}

// grow puts the lines of a pass behind those that a block has. A whole block takes exactly the
// memory that it needs.
func (r *rendered) grow(b *block, lines []byte) {
	if b == nil || len(lines) == 0 {
		return
	}
	r.mu.bytes -= b.size()
	switch {
	case b.text == nil:
		b.text = bytes.Clone(lines)
	case b.next()%blockEvents == 0:
		b.text = slices.Concat(b.text, lines)
	default:
		b.text = append(b.text, lines...)
	}
	r.mu.bytes += b.size()
}

// drop drops the blocks that were not read for longest, until the others fit. The present one
// stays.
func (r *rendered) drop(present *block) {
	for r.mu.bytes > r.most {
		b, _ := r.mu.used.Back().Value.(*block) // the list holds nothing else
		if b == present {
			return
		}
		r.forget(b)
	}
}

func (r *rendered) forget(b *block) {
	r.mu.used.Remove(b.at)
	delete(r.mu.blocks, b.number)
	r.mu.bytes -= b.size()
}

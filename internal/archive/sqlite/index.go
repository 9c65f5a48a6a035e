package sqlite

import (
	"database/sql/driver"
	"fmt"
	"maps"
	"slices"
)

// The lists of the index, written. A list is cut into blocks that do not overlap; a block is found
// by its first entry.

// add puts entries into a list. They are sorted.
func (c *conn) add(w word, o order, entries []entry) error {
	// Most entries belong behind all others, into the last block.
	block, err := c.block(o, "SELECT entries FROM list WHERE word = ? AND sort = ? ORDER BY first DESC LIMIT 1",
		int64(w), int64(o))
	if err != nil {
		return err
	}
	var next []entry // the block behind it; empty: it is the last one
	if len(block) > 0 && o.compare(entries[0], block[0]) < 0 {
		if block, next, err = c.blockFor(w, o, entries[0]); err != nil {
			return err
		}
	}
	for {
		n := len(entries)
		if len(next) > 0 {
			n, _ = slices.BinarySearchFunc(entries, next[0], o.compare)
		}
		if err := c.replace(w, o, block, merge(o, block, entries[:n]), len(next) == 0); err != nil {
			return err
		}
		if entries = entries[n:]; len(entries) == 0 {
			return nil
		}
		block = next
		if next, err = c.block(o, selectAfter, int64(w), int64(o), o.key(block[0])); err != nil {
			return err
		}
		if len(next) > 0 && o.compare(entries[0], next[0]) >= 0 { // not into that block
			if block, next, err = c.blockFor(w, o, entries[0]); err != nil {
				return err
			}
		}
	}
}

// blockFor returns the block that an entry belongs into, and the next one.
func (c *conn) blockFor(w word, o order, e entry) (block, next []entry, err error) {
	block, err = c.block(o, selectAtOrBefore, int64(w), int64(o), o.key(e))
	if err == nil && len(block) == 0 { // before all others
		block, err = c.block(o, selectAfter, int64(w), int64(o), []byte{})
	}
	if err == nil && len(block) > 0 {
		next, err = c.block(o, selectAfter, int64(w), int64(o), o.key(block[0]))
	}
	return block, next, err
}

const (
	selectAtOrBefore = "SELECT entries FROM list WHERE word = ? AND sort = ? AND first <= ? ORDER BY first DESC LIMIT 1"
	selectBefore     = "SELECT entries FROM list WHERE word = ? AND sort = ? AND first < ? ORDER BY first DESC LIMIT 1"
	selectAfter      = "SELECT entries FROM list WHERE word = ? AND sort = ? AND first > ? ORDER BY first LIMIT 1"
)

// block reads the block that a query finds; it is empty if there is none.
func (c *conn) block(o order, query string, values ...driver.Value) ([]entry, error) {
	return c.readBlock(o, nil, query, values...)
}

// readBlock is block with memory for the entries, which it may use.
func (c *conn) readBlock(o order, into []entry, query string, values ...driver.Value) ([]entry, error) {
	row, err := c.First(query, values...)
	if row == nil || err != nil {
		return nil, err
	}
	data, _ := row[0].([]byte)
	block, err := decodeBlock(data, slices.Grow(into[:0], c.sizes.block))
	if err == nil && (len(block) == 0 || !slices.IsSortedFunc(block, o.compare)) {
		err = errDamaged
	}
	if err != nil {
		return nil, c.Damaged("a list of its index (word %v)", values[0])
	}
	return block, nil
}

// merge returns the union of two sorted lists.
func merge(o order, a, b []entry) []entry {
	merged := make([]entry, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && o.compare(a[0], b[0]) < 0:
			merged, a = append(merged, a[0]), a[1:]
		case len(a) > 0 && o.compare(a[0], b[0]) == 0:
			a = a[1:]
		default:
			merged, b = append(merged, b[0]), b[1:]
		}
	}
	return merged
}

// replace writes entries in the place of a block, in several if they are too many for one. The
// blocks at the end of a list are full; others keep room for entries between theirs.
func (c *conn) replace(w word, o order, old, entries []entry, last bool) error {
	if len(old) > 0 && (len(entries) == 0 || old[0] != entries[0]) {
		if _, err := c.Exec("DELETE FROM list WHERE word = ? AND sort = ? AND first = ?", int64(w), int64(o),
			o.key(old[0])); err != nil {
			return err
		}
	}
	size := c.sizes.block
	if !last && len(entries) > size {
		pieces := (len(entries) + size - 1) / size
		size = (len(entries) + pieces - 1) / pieces
	}
	for len(entries) > 0 {
		n := min(size, len(entries))
		if _, err := c.Exec("REPLACE INTO list VALUES (?, ?, ?, ?)", int64(w), int64(o), o.key(entries[0]),
			encodeBlock(entries[:n])); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// removeAll takes jobs out of the lists of their words.
func (c *conn) removeAll(jobs []recent) error {
	lists := map[word][]entry{}
	for _, j := range jobs {
		for _, w := range j.words {
			lists[w] = append(lists[w], j.entry)
		}
	}
	return c.eachList(lists, c.remove)
}

// remove takes entries out of a list. They are sorted.
func (c *conn) remove(w word, o order, entries []entry) error {
	for len(entries) > 0 {
		block, err := c.block(o, selectAtOrBefore, int64(w), int64(o), o.key(entries[0]))
		if err != nil {
			return err
		}
		if len(block) == 0 {
			entries = entries[1:]
			continue
		}
		end := block[len(block)-1]
		n, _ := slices.BinarySearchFunc(entries, end, func(e, end entry) int { // behind end
			if o.compare(e, end) <= 0 {
				return -1
			}
			return 1
		})
		n = max(n, 1)
		gone := entries[:n]
		kept := slices.DeleteFunc(slices.Clone(block), func(e entry) bool {
			_, found := slices.BinarySearchFunc(gone, e, o.compare)
			return found
		})
		if len(kept) < len(block) {
			if err := c.replace(w, o, block, kept, true); err != nil {
				return err
			}
		}
		entries = entries[n:]
	}
	return nil
}

// recents returns the packed jobs that are not yet in their lists.
func (c *conn) recents() ([][]byte, error) {
	var packed [][]byte
	err := c.Rows(func(row []driver.Value) error {
		data, _ := row[0].([]byte)
		packed = append(packed, data)
		return nil
	}, "SELECT jobs FROM recent ORDER BY n")
	return packed, err
}

// eachRecent calls job for each job in packed.
func (c *conn) eachRecent(packed [][]byte, job func(e entry, words []byte)) error {
	for i, data := range packed {
		if err := eachRecent(data, job); err != nil {
			return c.Damaged("row %d of its recent jobs", i)
		}
	}
	return nil
}

// fold moves the recent jobs into the lists.
func (c *conn) fold(s *state) error {
	packed, err := c.recents()
	if err != nil {
		return err
	}
	lists := map[word][]entry{}
	err = c.eachRecent(packed, func(e entry, words []byte) {
		for i := range len(words) / wordBytes {
			w := wordAt(words, i)
			lists[w] = append(lists[w], e)
		}
	})
	if err != nil {
		return err
	}
	if err := c.eachList(lists, c.add); err != nil {
		return fmt.Errorf("enter %d jobs into the index: %w", s.pending, err)
	}
	s.pending, s.pendingBytes = 0, 0
	_, err = c.Exec("DELETE FROM recent")
	return err
}

// eachList changes both lists of each word.
func (c *conn) eachList(lists map[word][]entry, change func(word, order, []entry) error) error {
	for _, w := range slices.Sorted(maps.Keys(lists)) {
		for o := range numOrders {
			slices.SortFunc(lists[w], o.compare)
			if err := change(w, o, lists[w]); err != nil {
				return err
			}
		}
	}
	return nil
}

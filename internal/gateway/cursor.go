package gateway

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
)

// cursor is the place at which the next page of a list begins. A caller sends it back as it came.
// It grants nothing: whoever makes one up gets a page of the same list that begins elsewhere.
type cursor struct {
	list     uint8  // listOfJobs or listOfTasks
	criteria uint64 // hash of the criteria and the order of the list

	// The last object of the page before, which need not exist any more.
	phase    uint8 // tasks, failed ones first: 1 behind the failed ones
	finished int64 // in the order of the ends
	uid      plimsoll.UID
	id       string // of the job
	key      string // of the task

	// archived is a place in the archive's list of tasks at which it is read on. It lies before the
	// last object, or at it.
	archived archive.TaskPosition

	pinned  bool
	gateway string // that holds the pin
	version plimsoll.Version
}

// The lists that have cursors.
const (
	listOfJobs uint8 = iota + 1
	listOfTasks
)

const (
	cursorFormat = 1
	// maxCursor bounds a cursor in text. The ids in it have at most 255 bytes each.
	maxCursor = 2048
)

// text returns the cursor as a caller gets it.
func (c *cursor) text() string {
	b := []byte{cursorFormat, c.list, c.phase, 0}
	if c.pinned {
		b[3] = 1
	}
	b = binary.BigEndian.AppendUint64(b, c.criteria)
	b = appendPosition(b, archive.Position{UID: c.uid, Finished: c.finished, ID: c.id})
	b = appendString(b, c.key)
	b = appendPosition(b, c.archived.Job)
	b = binary.AppendUvarint(b, uint64(uint32(c.archived.Task)))
	if c.pinned {
		b = appendString(b, c.gateway)
		b = binary.AppendUvarint(b, c.version.Epoch)
		b = binary.AppendUvarint(b, c.version.Revision)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func appendPosition(b []byte, p archive.Position) []byte {
	b = append(b, p.UID[:]...)
	b = binary.AppendVarint(b, p.Finished)
	return appendString(b, p.ID)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// parseCursor is the inverse of text. A text that it does not write is an error of CodeInvalid.
func parseCursor(field, text string) (cursor, error) {
	bad := func() (cursor, error) {
		return cursor{}, plimsoll.Invalid(field, "is not one that a list has returned; begin again without it")
	}
	if len(text) > maxCursor {
		return bad()
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return bad()
	}
	r := cursorReader{rest: b}
	head := r.take(4)
	if r.failed || head[0] != cursorFormat || head[3] > 1 {
		return bad()
	}
	c := cursor{list: head[1], phase: head[2], pinned: head[3] == 1}
	if sum := r.take(8); !r.failed {
		c.criteria = binary.BigEndian.Uint64(sum)
	}
	place := r.position()
	c.uid, c.finished, c.id = place.UID, place.Finished, place.ID
	c.key = r.string()
	c.archived.Job = r.position()
	task := r.uvarint()
	c.archived.Task = int32(uint32(task))
	if c.pinned {
		c.gateway = r.string()
		c.version.Epoch, c.version.Revision = r.uvarint(), r.uvarint()
	}
	if r.failed || len(r.rest) > 0 || task > 1<<31-1 || c.text() != text {
		return bad()
	}
	return c, nil
}

// cursorReader reads the parts of a cursor. Once one is missing, failed is set.
type cursorReader struct {
	rest   []byte
	failed bool
}

func (r *cursorReader) take(n int) []byte {
	if r.failed = r.failed || n > len(r.rest); r.failed {
		return nil
	}
	part := r.rest[:n]
	r.rest = r.rest[n:]
	return part
}

func (r *cursorReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if r.failed = r.failed || n <= 0; r.failed {
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *cursorReader) string() string {
	n := r.uvarint()
	if r.failed = r.failed || n > uint64(len(r.rest)); r.failed {
		return ""
	}
	return string(r.take(int(n)))
}

func (r *cursorReader) position() (p archive.Position) {
	copy(p.UID[:], r.take(len(p.UID)))
	v, n := binary.Varint(r.rest)
	if r.failed = r.failed || n <= 0; r.failed {
		return archive.Position{}
	}
	p.Finished, r.rest = v, r.rest[n:]
	p.ID = r.string()
	return p
}

// check fails if a cursor is of another list, or of a pin of another gateway.
func (c *cursor) check(field string, list uint8, criteria uint64, gateway string) error {
	if c.list != list || c.criteria != criteria {
		return plimsoll.Invalid(field,
			"belongs to a list with other criteria or another order; repeat those, or begin again without it")
	}
	if c.pinned && c.gateway != gateway {
		return plimsoll.Errorf(plimsoll.CodeStale,
			"the pinned state is held by the gateway %.200q, and this is %q; ask there, or begin again", c.gateway,
			gateway)
	}
	return nil
}

package ring

import (
	"encoding/binary"
	"iter"
	"math"

	"github.com/plimsoll-dev/plimsoll"
)

// Decode unpacks a chunk. It yields the events in order, and stops with an error at malformed
// bytes. Events of one chunk share their Resources, which must not be changed.
func Decode(data []byte) iter.Seq2[plimsoll.Event, error] {
	return func(yield func(plimsoll.Event, error) bool) {
		if len(data) == 0 {
			return
		}
		var d decoder
		if err := d.reset(data); err != nil {
			yield(plimsoll.Event{}, err)
			return
		}
		for d.left > 0 {
			if err := d.next(); err != nil {
				yield(plimsoll.Event{}, err)
				return
			}
			if !yield(d.event, nil) {
				return
			}
		}
		if err := d.end(); err != nil {
			yield(plimsoll.Event{}, err)
		}
	}
}

// decoder is the counterpart of Encoder. Its tables are reused for the next chunk.
type decoder struct {
	data      []byte
	left      uint64 // number of events that still follow
	event     plimsoll.Event
	shapes    []shape
	resources []plimsoll.Resources
	texts     []string
	roles     [numRoles]uint64
	newest    [numFamilies]string
	revision  uint64 // in the uid of the last head
	version   byte
}

type shape struct {
	kind      plimsoll.EventType
	change    plimsoll.ChangeType
	detail    plimsoll.ChangeDetail
	flags     uint64
	resources plimsoll.Resources
}

func malformed(format string, args ...any) error {
	e := plimsoll.Errorf(plimsoll.CodeCorrupt, format, args...)
	e.Op = "unpack a chunk of events"
	return e
}

// batch calls fn for the events of a chunk with ids from start up to, but not including, end. It
// returns false once no further chunk is wanted.
func (d *decoder) batch(
	chunk Chunk, start, end uint64, fn func(id uint64, ev *plimsoll.Event) bool,
) (more bool, err error) {
	if err := d.reset(chunk.Data); err != nil {
		return false, err
	}
	if d.left != chunk.Count {
		return false, malformed("it holds %d events; it was announced with %d", d.left, chunk.Count)
	}
	for id := chunk.FirstID; d.left > 0; id++ {
		if id >= end {
			return false, nil
		}
		if err := d.next(); err != nil {
			return false, err
		}
		if id >= start && !fn(id, &d.event) {
			return false, nil
		}
	}
	return true, d.end()
}

// isRead reports whether this program reads a version of the form.
func isRead(v byte) bool { return v == version || v == oldVersion }

// reset begins a chunk.
func (d *decoder) reset(data []byte) error {
	if len(data) == 0 {
		return malformed("it is empty")
	}
	if !isRead(data[0]) {
		return malformed("it has the version %d; this program reads versions %d and %d", data[0], oldVersion, version)
	}
	d.data, d.version, d.revision = data[1:], data[0], 0
	d.shapes, d.resources, d.texts = d.shapes[:0], d.resources[:0], d.texts[:0]
	clear(d.roles[:])
	clear(d.newest[:])
	d.event = plimsoll.Event{}
	var err error
	if d.left, err = d.uvarint(); err != nil {
		return err
	}
	d.event.Time, err = d.varint()
	return err
}

// end checks that nothing follows the last event.
func (d *decoder) end() error {
	if len(d.data) > 0 {
		return malformed("%d bytes follow its last event", len(d.data))
	}
	return nil
}

// next unpacks one event into d.event.
func (d *decoder) next() error {
	code, err := d.uvarint()
	if err != nil {
		return err
	}
	if code == 0 {
		if err := d.readShape(); err != nil {
			return err
		}
		code = uint64(len(d.shapes))
	}
	if code > uint64(len(d.shapes)) {
		return malformed("an event refers to shape %d of %d", code, len(d.shapes))
	}
	s := &d.shapes[code-1]
	d.event = plimsoll.Event{
		Type: s.kind, Change: s.change, Detail: s.detail, Time: d.event.Time, Resources: s.resources,
	}
	if s.flags&hasTime != 0 {
		delta, err := d.varint()
		if err != nil {
			return err
		}
		d.event.Time += delta
	}
	kind := typeIndex(s.kind)
	if s.flags&hasObject != 0 {
		if d.event.Object, err = d.text(kind, objectFamily[kind], maxText); err != nil {
			return err
		}
	}
	if s.flags&hasReference != 0 {
		if d.event.Reference, err = d.text(roleReference, referenceFamily[kind], maxText); err != nil {
			return err
		}
	}
	if s.flags&hasMessage != 0 {
		if d.event.Message, err = d.text(roleMessage, familyMessage, plimsoll.MaxEventMessage); err != nil {
			return err
		}
	}
	if s.flags&hasHead != 0 {
		if d.event.Head, err = d.head(); err != nil {
			return err
		}
	}
	d.left--
	return nil
}

// head unpacks what the event tells of a job.
func (d *decoder) head() (*plimsoll.JobHead, error) {
	submitted, err := d.varint()
	if err != nil {
		return nil, err
	}
	batch, err := d.varint()
	if err != nil {
		return nil, err
	}
	d.revision += uint64(batch)
	h := &plimsoll.JobHead{UID: plimsoll.MakeUID(d.event.Time+submitted, d.revision)}
	if h.Owner, err = d.optional(); err != nil {
		return nil, err
	}
	n, err := d.uvarint()
	if err != nil {
		return nil, err
	}
	if n > uint64(len(d.data)/2) { // each takes at least two bytes
		return nil, malformed("a job has more labels than bytes")
	}
	if n > 0 {
		h.Labels = make(map[string]string, n)
	}
	for range n {
		key, err := d.optional()
		if err != nil {
			return nil, err
		}
		if h.Labels[key], err = d.optional(); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// optional unpacks a text of a head, which may be empty.
func (d *decoder) optional() (string, error) {
	is, err := d.bytes(1)
	switch {
	case err != nil:
		return "", err
	case is[0] == 0:
		return "", nil
	case is[0] == 1:
		return d.text(roleHead, familyOther, maxText)
	}
	return "", malformed("a text of a job begins with %d", is[0])
}

func (d *decoder) readShape() error {
	kind, err := d.bytes(1)
	if err != nil {
		return err
	}
	s := shape{kind: plimsoll.EventType(kind[0] % 8), change: plimsoll.ChangeType(kind[0] / 8)}
	first := kind[0]
	if first == rareKind {
		if kind, err = d.bytes(2); err != nil {
			return err
		}
		s.kind, s.change = plimsoll.EventType(kind[0]), plimsoll.ChangeType(kind[1])
	}
	switch i := int(first) - usualKind; {
	case d.version == oldVersion || i < 0 || first == rareKind:
		if err := d.readDetail(&s); err != nil {
			return err
		}
	case i < len(usualShapes):
		u := usualShapes[i]
		s = shape{kind: u.kind, change: u.change, detail: u.detail, flags: u.flags}
	default:
		return malformed("it has a usual shape %d; this program knows %d", i, len(usualShapes))
	}
	if s.flags&hasResources != 0 {
		if s.resources, err = d.readResources(); err != nil {
			return err
		}
	}
	d.shapes = append(d.shapes, s)
	return nil
}

// readDetail reads the detail and the flags of a shape that is not a usual one.
func (d *decoder) readDetail(s *shape) error {
	flags := numFlags
	if d.version == oldVersion {
		flags = oldNumFlags
	}
	detail, err := d.uvarint()
	if err != nil {
		return err
	}
	s.flags = detail & (1<<flags - 1)
	if detail >>= flags; detail > math.MaxUint16 {
		return malformed("it has a shape that is not possible")
	}
	s.detail = plimsoll.ChangeDetail(detail)
	return nil
}

func (d *decoder) readResources() (plimsoll.Resources, error) {
	code, err := d.uvarint()
	if err != nil {
		return nil, err
	}
	if code > uint64(len(d.resources)) {
		return nil, malformed("a shape refers to resources %d of %d", code, len(d.resources))
	}
	if code > 0 {
		return d.resources[code-1], nil
	}
	n, err := d.uvarint()
	if err != nil {
		return nil, err
	}
	if n > uint64(len(d.data)) { // each takes at least two bytes
		return nil, malformed("it has more resources than bytes")
	}
	r := make(plimsoll.Resources, n)
	for range n {
		name, err := d.readName()
		if err != nil {
			return nil, err
		}
		if r[name], err = d.varint(); err != nil {
			return nil, err
		}
	}
	d.resources = append(d.resources, r)
	return r, nil
}

func (d *decoder) readName() (string, error) {
	n, err := d.uvarint()
	if err != nil {
		return "", err
	}
	if n < uint64(len(usualNames)) {
		return usualNames[n], nil
	}
	name, err := d.bytes(n - uint64(len(usualNames)))
	return string(name), err
}

func (d *decoder) text(role int, of family, longest int) (string, error) {
	code, err := d.uvarint()
	if err != nil {
		return "", err
	}
	if code >= uint64(numFamilies) {
		i := d.roles[role] + uint64(unzigzag(code-uint64(numFamilies)))
		if i >= uint64(len(d.texts)) {
			return "", malformed("an event refers to text %d of %d", i, len(d.texts))
		}
		d.roles[role] = i
		return d.checked(d.texts[i], longest)
	}
	prefix := d.newest[code]
	shared, err := d.uvarint()
	if err != nil {
		return "", err
	}
	if shared > uint64(len(prefix)) {
		return "", malformed("a text shares %d bytes with one of %d", shared, len(prefix))
	}
	n, err := d.uvarint()
	if err != nil {
		return "", err
	}
	suffix, err := d.bytes(n)
	if err != nil {
		return "", err
	}
	s, err := d.checked(prefix[:shared]+string(suffix), maxText)
	if err != nil {
		return "", err
	}
	d.roles[role], d.newest[of] = uint64(len(d.texts)), s
	d.texts = append(d.texts, s)
	return d.checked(s, longest)
}

func (*decoder) checked(s string, longest int) (string, error) {
	if s == "" || len(s) > longest {
		return "", malformed("a text has %d bytes; 1 to %d are possible", len(s), longest)
	}
	return s, nil
}

func (d *decoder) bytes(n uint64) ([]byte, error) {
	if n > uint64(len(d.data)) {
		return nil, malformed("it ends inside a field")
	}
	b := d.data[:n]
	d.data = d.data[n:]
	return b, nil
}

func (d *decoder) uvarint() (uint64, error) {
	if len(d.data) > 0 && d.data[0] < 0x80 {
		v := uint64(d.data[0])
		d.data = d.data[1:]
		return v, nil
	}
	v, n := binary.Uvarint(d.data)
	if n <= 0 {
		return 0, malformed("it ends inside a number")
	}
	d.data = d.data[n:]
	return v, nil
}

func (d *decoder) varint() (int64, error) {
	v, err := d.uvarint()
	return unzigzag(v), err
}

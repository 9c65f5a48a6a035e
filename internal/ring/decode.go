package ring

import (
	"encoding/binary"
	"iter"

	"github.com/plimsoll-dev/plimsoll"
)

// Decode unpacks a chunk. It yields the events in order and stops with an error where the bytes are malformed. Events of one chunk
// share their Resources, which must not be changed.
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

// decoder mirrors Encoder. Its tables are used again for the next chunk.
type decoder struct {
	data      []byte
	left      uint64 // events still to come
	event     plimsoll.Event
	shapes    []shape
	resources []plimsoll.Resources
	texts     []string
	roles     [numRoles]uint64
	newest    [numFamilies]string
}

type shape struct {
	kind      plimsoll.EventType
	change    plimsoll.ChangeType
	detail    plimsoll.ChangeDetail
	flags     byte
	resources plimsoll.Resources
}

func malformed(format string, args ...any) error {
	e := plimsoll.Errorf(plimsoll.CodeCorrupt, format, args...)
	e.Op = "unpack a chunk of events"
	return e
}

// batch calls fn for the events of a chunk with ids from start to end, the latter excluded. It returns false if that is all.
func (d *decoder) batch(chunk Chunk, start, end uint64, fn func(id uint64, ev *plimsoll.Event) bool) (more bool, err error) {
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

// reset begins a chunk.
func (d *decoder) reset(data []byte) error {
	if len(data) == 0 {
		return malformed("it is empty")
	}
	if data[0] != version {
		return malformed("it has the version %d; this program reads version %d", data[0], version)
	}
	d.data = data[1:]
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
	d.event = plimsoll.Event{Type: s.kind, Change: s.change, Detail: s.detail, Time: d.event.Time, Resources: s.resources}
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
	d.left--
	return nil
}

func (d *decoder) readShape() error {
	if len(d.data) < 2 {
		return malformed("it ends inside a shape")
	}
	s := shape{kind: plimsoll.EventType(d.data[0]), change: plimsoll.ChangeType(d.data[1])}
	d.data = d.data[2:]
	detail, err := d.uvarint()
	if err != nil {
		return err
	}
	if s.detail = plimsoll.ChangeDetail(detail); uint64(s.detail) != detail || len(d.data) == 0 || d.data[0] > allFlags {
		return malformed("it has a shape that is not possible")
	}
	s.flags, d.data = d.data[0], d.data[1:]
	if s.flags&hasResources != 0 {
		if s.resources, err = d.readResources(); err != nil {
			return err
		}
	}
	d.shapes = append(d.shapes, s)
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
		name, err := d.bytes()
		if err != nil {
			return nil, err
		}
		if r[string(name)], err = d.varint(); err != nil {
			return nil, err
		}
	}
	d.resources = append(d.resources, r)
	return r, nil
}

func (d *decoder) text(role int, of family, longest int) (string, error) {
	code, err := d.uvarint()
	if err != nil {
		return "", err
	}
	if code >= codeKnown {
		i := d.roles[role] + uint64(unzigzag(code-codeKnown))
		if i >= uint64(len(d.texts)) {
			return "", malformed("an event refers to text %d of %d", i, len(d.texts))
		}
		d.roles[role] = i
		return d.checked(d.texts[i], longest)
	}
	from := of
	if code == codeNewFromJob {
		from = familyJob
	}
	shared, err := d.uvarint()
	if err != nil {
		return "", err
	}
	prefix := d.newest[from]
	if shared > uint64(len(prefix)) {
		return "", malformed("a text shares %d bytes with one of %d", shared, len(prefix))
	}
	suffix, err := d.bytes()
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

func (d *decoder) bytes() ([]byte, error) {
	n, err := d.uvarint()
	if err != nil {
		return nil, err
	}
	if n > uint64(len(d.data)) {
		return nil, malformed("it ends inside a text")
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

package sqlite

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/sqlitefile"
)

// decoder reads numbers and texts. After a failure it gives zeroes.
type decoder struct {
	data   []byte
	failed bool
}

// open begins to read a sealed value.
func open(value any) *decoder {
	data, _ := value.([]byte)
	content, ok := sqlitefile.Unsealed(data)
	return &decoder{content, !ok}
}

// whole reports whether all was read, and nothing is left.
func (d *decoder) whole() bool { return !d.failed && len(d.data) == 0 }

func (d *decoder) fail() {
	d.data, d.failed = nil, true
}

func (d *decoder) number() uint64 {
	v, n := binary.Uvarint(d.data)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.data = d.data[n:]
	return v
}

func (d *decoder) signed() int64 {
	v, n := binary.Varint(d.data)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.data = d.data[n:]
	return v
}

// count returns a number of parts that follow, each of which takes at least a byte.
func (d *decoder) count() int {
	n := d.number()
	if n > uint64(len(d.data)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) bytes() []byte {
	n := d.count()
	part := d.data[:n:n]
	d.data = d.data[n:]
	return part
}

func (d *decoder) text() string { return string(d.bytes()) }

func appendText(data []byte, text string) []byte {
	return append(binary.AppendUvarint(data, uint64(len(text))), text...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// head has the facts about a chunk beside its events.
type head struct {
	n          int64
	instance   string
	first      uint64
	count      uint64
	from, to   int64 // times of the first and the last event
	low, high  int64 // times of the earliest and the latest event
	peak       int64 // the highest of all chunks up to this one
	gapped     bool  // events before it are missing
	total      int64 // events ever, up to its last one
	sum        uint32
	objects    []int64 // sorted numbers of those with an event in it
	compressed bool
}

func (h *head) encode() []byte {
	data := make([]byte, 0, 96+3*len(h.objects))
	data = binary.AppendVarint(data, h.n)
	data = appendText(data, h.instance)
	data = binary.AppendUvarint(binary.AppendUvarint(data, h.first), h.count)
	for _, n := range []int64{h.from, h.to, h.low, h.high, h.peak, h.total} {
		data = binary.AppendVarint(data, n)
	}
	flags := byte(0)
	if h.gapped {
		flags |= 1
	}
	if h.compressed {
		flags |= 2
	}
	data = binary.AppendUvarint(append(data, flags), uint64(h.sum))
	data = binary.AppendUvarint(data, uint64(len(h.objects)))
	last := int64(0)
	for _, n := range h.objects {
		data = binary.AppendVarint(data, n-last)
		last = n
	}
	return sqlitefile.Sealed(data)
}

// decodeHead reads the head of a chunk; its objects only if they are wanted.
func (c *conn) decodeHead(n int64, value any, objects bool) (*head, error) {
	d := open(value)
	h := &head{n: d.signed(), instance: d.text(), first: d.number(), count: d.number()}
	for _, field := range []*int64{&h.from, &h.to, &h.low, &h.high, &h.peak, &h.total} {
		*field = d.signed()
	}
	flags := d.number()
	h.gapped, h.compressed, h.sum = flags&1 != 0, flags&2 != 0, uint32(d.number())
	if d.failed || h.n != n {
		return nil, c.Damaged("the head of chunk %d", n)
	}
	if !objects {
		return h, nil
	}
	last := int64(0)
	h.objects = make([]int64, d.count())
	for i := range h.objects {
		last += d.signed()
		h.objects[i] = last
	}
	if !d.whole() {
		return nil, c.Damaged("the head of chunk %d", n)
	}
	return h, nil
}

// events returns the stored events of a chunk.
func (c *conn) events(h *head, value any) (history.Events, error) {
	data, _ := value.([]byte)
	if crc32.Checksum(data, castagnoli) != h.sum {
		return history.Events{}, c.Damaged("the events of chunk %d", h.n)
	}
	if h.compressed {
		var err error
		if data, err = c.packing.unpack(data, history.MaxWriteBytes); err != nil {
			return history.Events{}, c.Damaged("the events of chunk %d (%v)", h.n, err)
		}
	}
	return history.Events{
		Instance: h.instance, First: h.first, Count: h.count, From: h.from, To: h.to, Data: data,
	}, nil
}

// packing compresses chunks and folds. Readers share one.
type packing struct {
	in  *zstd.Encoder // nil: of a reader
	out *zstd.Decoder
}

func newPacking(write bool) (*packing, error) {
	p := &packing{}
	var err error
	p.out, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(4), zstd.WithDecoderMaxMemory(history.MaxFoldBytes))
	if err == nil && write {
		p.in, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithEncoderCRC(false))
	}
	if err != nil {
		return nil, fmt.Errorf("prepare zstd: %w", err)
	}
	return p, nil
}

func (p *packing) close() {
	p.out.Close()
}

// leastPacked is from how many bytes on it is tried to make data smaller.
const leastPacked = 256

// pack returns data in its smaller form.
func (p *packing) pack(data []byte) (packed []byte, compressed bool) {
	if len(data) >= leastPacked {
		if packed = p.in.EncodeAll(data, nil); len(packed) < len(data)*15/16 {
			return packed, true
		}
	}
	return data, false
}

// unpack returns the content of packed data of at most a size.
func (p *packing) unpack(data []byte, most uint64) ([]byte, error) {
	var h zstd.Header
	if err := h.Decode(data); err != nil {
		return nil, fmt.Errorf("read its size: %w", err)
	}
	if !h.HasFCS || h.FrameContentSize > most {
		return nil, fmt.Errorf("it has %d bytes, of which the size is known: %v", h.FrameContentSize, h.HasFCS)
	}
	content, err := p.out.DecodeAll(data, make([]byte, 0, h.FrameContentSize))
	if err != nil {
		return nil, fmt.Errorf("decompress it: %w", err)
	}
	return content, nil
}

func encodeSums(s *history.Sums) []byte {
	data := make([]byte, 0, 32*len(s.Used)+5*len(s.Waits.Buckets)+32)
	data = binary.AppendUvarint(data, uint64(len(s.Used)))
	for _, name := range slices.Sorted(maps.Keys(s.Used)) {
		data = appendAmount(appendText(data, name), s.Used[name])
	}
	w := &s.Waits
	data = appendAmount(binary.AppendUvarint(data, w.Count), w.Total)
	data = binary.AppendVarint(data, w.Longest)
	data = binary.AppendUvarint(data, uint64(len(w.Buckets)))
	for _, b := range w.Buckets {
		data = binary.AppendUvarint(append(data, b.Index), b.Count)
	}
	for _, n := range []uint64{s.Started, s.Ended, s.Failed} {
		data = binary.AppendUvarint(data, n)
	}
	return sqlitefile.Sealed(data)
}

func appendAmount(data []byte, a history.Amount) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(data, a.High), a.Low)
}

func (d *decoder) amount() history.Amount { return history.Amount{High: d.number(), Low: d.number()} }

// decodeSums reads sums; names has the texts of resources, so that each is made once.
func decodeSums(value any, names map[string]string) (s history.Sums, ok bool) {
	d := open(value)
	n := d.count()
	s.Used = make(map[string]history.Amount, n)
	for range n {
		name := d.bytes()
		text, known := names[string(name)]
		if !known {
			text = string(name)
			names[text] = text
		}
		s.Used[text] = d.amount()
	}
	s.Waits.Count, s.Waits.Total, s.Waits.Longest = d.number(), d.amount(), d.signed()
	if n := d.count(); n > 0 {
		s.Waits.Buckets = make([]history.Bucket, n)
	}
	for i := range s.Waits.Buckets {
		if len(d.data) == 0 {
			d.fail()
			break
		}
		s.Waits.Buckets[i].Index = d.data[0]
		d.data = d.data[1:]
		s.Waits.Buckets[i].Count = d.number()
	}
	s.Started, s.Ended, s.Failed = d.number(), d.number(), d.number()
	return s, d.whole()
}

func encodeJob(j *history.Job) []byte {
	data := binary.AppendVarint(nil, j.Life)
	data = append(appendText(data, j.ID), j.UID[:]...)
	data = appendText(appendText(data, j.Owner), j.Queue)
	data = binary.AppendUvarint(data, uint64(j.State))
	data = binary.AppendVarint(binary.AppendVarint(data, j.Submitted), j.Ended)
	if j.Labels != nil {
		data = append(data, 1)
		data = append(data, history.EncodeLabels(j.Labels)...)
	}
	return sqlitefile.Sealed(data)
}

func (c *conn) decodeJob(life int64, value any) (*history.Job, error) {
	d := open(value)
	j := &history.Job{Life: d.signed(), ID: d.text()}
	if len(d.data) < len(j.UID) {
		d.fail()
	} else {
		d.data = d.data[copy(j.UID[:], d.data):]
	}
	j.Owner, j.Queue, j.State = d.text(), d.text(), plimsoll.ChangeDetail(d.number())
	j.Submitted, j.Ended = d.signed(), d.signed()
	good := !d.failed && j.Life == life
	if good && len(d.data) > 0 {
		j.Labels, good = history.DecodeLabels(string(d.data[1:]))
	}
	if !good {
		return nil, c.Damaged("the row of life %d", life)
	}
	return j, nil
}

func encodeGap(g *history.Gap) []byte {
	data := appendText(nil, g.Instance)
	data = binary.AppendUvarint(binary.AppendUvarint(data, g.First), g.Next)
	data = binary.AppendVarint(binary.AppendVarint(data, g.From), g.To)
	return sqlitefile.Sealed(appendText(data, g.Reason))
}

func (c *conn) decodeGap(value any) (history.Gap, error) {
	d := open(value)
	g := history.Gap{
		Instance: d.text(), First: d.number(), Next: d.number(), From: d.signed(), To: d.signed(), Reason: d.text(),
	}
	if !d.whole() {
		return history.Gap{}, c.Damaged("a gap")
	}
	return g, nil
}
